"""Build the sections of the report, one module for each topic: analysed data in, blocks out."""
