"""Hold reference data on PostgreSQL versions, counters and machines, as data files with typed readers.

This room imports only `units` and `errors`. Nothing here is measured.
"""
