"""A server that the user named, as it is. Nothing here changes it."""
