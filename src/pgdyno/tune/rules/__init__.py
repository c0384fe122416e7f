"""The rules that derive each setting, by layer."""
