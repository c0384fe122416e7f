"""The samplers' files, and the series made of them."""
