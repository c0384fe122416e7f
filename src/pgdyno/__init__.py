"""pgdyno: a dynamometer for PostgreSQL."""

__version__ = "0.2.0"
