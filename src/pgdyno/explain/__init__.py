"""Turn estimates into findings with claim, evidence, rival causes and advice, without any I/O."""
