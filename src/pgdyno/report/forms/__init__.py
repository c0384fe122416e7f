"""Printers: blocks of a document in, terminal, Markdown or HTML out."""
