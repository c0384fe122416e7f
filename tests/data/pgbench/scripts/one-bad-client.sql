\if :client_id = 1
SELECT 1 / 0;
\endif
SELECT pg_sleep(0.01);
