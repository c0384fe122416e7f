"""Draw on the terminal: progress, trends, results, errors."""
