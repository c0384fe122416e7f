"""One short module for each command: the whole recipe, read first."""
