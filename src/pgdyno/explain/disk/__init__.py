"""Find what weakens the figures of a disk card."""
