"""Find what weakens the figures of a study."""
