"""From findings to text, Markdown, JSON and HTML. Rounding lives here and nowhere else."""
