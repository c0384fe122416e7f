"""Build what `pgdyno tune` shows of derived settings, and the files it writes."""
