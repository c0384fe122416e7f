"""Connection poolers: PgBouncers that pgdyno starts in front of its own servers, and poolers that run already."""
