-- money moves between two accounts
\set from_aid random(1, 100000 * :scale)
\set to_aid random(1, 100000 * :scale)
\set amount random(1, 100)
BEGIN;
UPDATE pgbench_accounts
  SET abalance = abalance - :amount
  WHERE aid = :from_aid;
UPDATE pgbench_accounts SET abalance = abalance + :amount WHERE aid = :to_aid;
END;
