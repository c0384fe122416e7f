"""Define the rules that find what would disturb a measurement on this machine."""
