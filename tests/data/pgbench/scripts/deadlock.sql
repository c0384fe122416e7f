\set first random(1, 2)
BEGIN;
UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = :first;
SELECT pg_sleep(0.005);
UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 3 - :first;
END;
