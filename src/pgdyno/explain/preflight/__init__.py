"""Rules of the preflight: what would spoil a measurement here."""
