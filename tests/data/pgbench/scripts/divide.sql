\set aid 1 / 0
SELECT :aid;
