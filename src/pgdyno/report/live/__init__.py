"""Make the live page: what it shows of a record that is being measured, and the page itself."""
