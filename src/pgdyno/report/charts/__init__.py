"""Charts of the report: data in, a Vega-Lite specification with its data out."""
