"""Change settings of servers that pgdyno did not start, and put them back."""
