"""From samples to estimates with their doubt. Pure."""
