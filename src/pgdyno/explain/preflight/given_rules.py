"""Name the rules of `preflight/given.py` that others ask for; `check` has two seconds, and loads no analysis for a name."""

from __future__ import annotations

FAR = "far"
"""The rule on the time that the network would take, as one connection saw it."""
TIMEOUTS = "timeouts"
"""The rule on what may end the loading of data, which says nothing of a study whose data are loaded."""
IN_ARGUMENTS = "password-in-arguments"
NOT_ENCRYPTED = "not-encrypted"
SLOW_NOTHING = frozenset({TIMEOUTS, IN_ARGUMENTS, NOT_ENCRYPTED})
"""Rules whose warnings are of what may fail, or of what others may read: no figure is lower for it."""
IN_USE = frozenset({"sessions-at-work", "archiving", "replicas"})
"""Rules whose findings say that others depend on the server, so that a load needs the user's word."""
