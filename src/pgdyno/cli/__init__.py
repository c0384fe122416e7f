"""Arguments in, one flow call, output and exit code."""
