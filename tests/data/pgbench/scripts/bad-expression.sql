\set aid random(1,
SELECT 1;
