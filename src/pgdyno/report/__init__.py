"""Turn analysed records into terminal text, Markdown, JSON and HTML. Numbers are rounded here and nowhere else."""
