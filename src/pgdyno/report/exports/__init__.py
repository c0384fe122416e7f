"""Write a study's figures in the formats of other programs."""
