"""Charts of the report: each is a Vega-Lite specification with its data."""
