"""PostgreSQL clusters of pgdyno's own: installation, initdb, templates, settings, start and stop, SQL."""
