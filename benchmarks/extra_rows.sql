\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
SELECT count(*) FROM generate_series(1, current_setting('bench.rows')::int);
