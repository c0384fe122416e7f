"""Have zsh and fish complete the program that was typed, as bash does: that of a clone is on no PATH."""

from __future__ import annotations

import re

from typer import _completion_shared

# Typer has its scripts ask the program by its name, at the end of a command.
_BY_NAME = re.compile(r"%\(prog_name\)s(?=[)\"])")
# As the shell runs it: without quotes, and with ~ for a home.
_TYPED = {"zsh": "${~${(Q)words[1]}}", "fish": "(string replace -r '^~/' $HOME/ -- (commandline -opc)[1])"}


def ask_typed_program() -> None:
    """Have the scripts of completion ask the program by the word that was typed."""
    scripts = _completion_shared._completion_scripts
    for shell, typed in _TYPED.items():
        scripts[shell] = _BY_NAME.sub(typed, scripts[shell])
