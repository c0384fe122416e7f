"""Run whole commands of pgdyno on another machine: carry pgdyno there, run it, bring its record home."""
