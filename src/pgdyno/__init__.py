"""pgdyno: a dynamometer for PostgreSQL."""

__version__ = "0.3.0"
