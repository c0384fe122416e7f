"""The published JSON documents: typed structs and their schema."""
