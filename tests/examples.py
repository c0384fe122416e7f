"""Say how many examples hypothesis tries: PGDYNO_EXAMPLES=10 asks for ten times as many."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("PGDYNO_EXAMPLES", "1"))
