"""Build the sections on disks: cards, layouts, and how much of a disk a load used."""
