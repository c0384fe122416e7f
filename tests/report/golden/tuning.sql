-- Derived by pgdyno. PostgreSQL 18.6, running as pid 7 in /data; this machine: 8 CPUs, 16 GB of
-- memory, data on a network SSD (ext4 on vda); oltp-write, 40 GB (assumed) of data, 200
-- connections, 32 (assumed) of them active.
-- PostgreSQL 18.6 accepts all of these values (`postgres -C`); none was started with them.
-- Run it with psql as a superuser: psql -X -v ON_ERROR_STOP=1 -f pgdyno.sql.

-- --- memory
-- It pays, since the dataset is larger than memory (restart)
ALTER SYSTEM SET shared_buffers = '4GB';
-- 32 sessions at work share what is left (reload)
-- already in force: ALTER SYSTEM SET work_mem = '4MB';

-- --- WAL and checkpoints
-- checkpoints then come by the clock, every 15 minutes, rather than by WAL; it's what a busy hour
-- takes (reload)
ALTER SYSTEM SET max_wal_size = '12GB';

-- --- autovacuum
-- It pays, since the dataset is larger than memory (reload)
ALTER SYSTEM SET autovacuum_vacuum_insert_scale_factor = '0.05';

-- --- logging
-- It pays, since the dataset is larger than memory (reload)
ALTER SYSTEM SET log_line_prefix = '%m [%p] it''s %q';
-- It pays, since the dataset is larger than memory (restart)
ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements', 'auto_explain';

SELECT pg_reload_conf();

-- A restart brings these into force: shared_buffers, shared_preload_libraries
-- To undo a line: ALTER SYSTEM RESET name. ALTER SYSTEM overrides postgresql.conf.
