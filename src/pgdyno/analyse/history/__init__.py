"""Recognise records that ask the same question over weeks, and find where their answers changed."""
