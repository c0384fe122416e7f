"""What weakens the figures of a disk card."""
