"""Compare records side by side: whether a comparison is allowed, how they differ, and ratios."""
