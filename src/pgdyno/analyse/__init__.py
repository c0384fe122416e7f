"""Turn samples into estimates with their intervals and doubts, without any I/O."""
