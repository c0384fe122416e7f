"""Define the published JSON documents: typed structs and their schema."""
