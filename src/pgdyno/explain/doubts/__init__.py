"""What weakens the figures of a study."""
