"""Show a record while it grows: on a page in a browser, and as metrics."""
