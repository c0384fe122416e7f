"""PostgreSQL clusters of pgdyno's own: home, initdb, templates, settings, start and stop."""
