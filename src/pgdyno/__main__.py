"""`python -m pgdyno`."""

from pgdyno.cli.main import main

main()
