"""Analyse TPS by number of clients: status of each load, knee, peak, the Universal Scalability Law."""
