"""Define the command line: arguments, one flow call, output and exit code."""
