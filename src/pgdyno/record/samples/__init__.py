"""Read and pack the samplers' files, and compute time series from them."""
