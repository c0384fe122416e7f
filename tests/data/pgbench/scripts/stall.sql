SELECT pg_sleep(2.5);
