"""What happens within a trial: cliffs, stalls, cycles, declines, and their causes."""
