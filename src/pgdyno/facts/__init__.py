"""Data of record: what PostgreSQL versions, counters and machines are, as TOML with typed readers.

Imports only `units` and `errors`. Nothing here is measured.
"""
