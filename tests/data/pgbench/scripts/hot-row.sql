BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT bbalance FROM pgbench_branches WHERE bid = 1;
SELECT pg_sleep(0.002);
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
END;
