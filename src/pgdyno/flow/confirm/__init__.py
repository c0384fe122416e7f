"""Run the experiment that would show what limits a record's load: here, on a given server, or on the machine of the record."""
