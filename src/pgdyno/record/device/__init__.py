"""Hold disk cards, and parse what fio, pg_test_fsync and pg_test_timing print."""
