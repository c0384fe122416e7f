"""Define the colours of the report, for light and dark pages; the style sheet and the charts use them.

Source: Okabe & Ito, "Color Universal Design" (2008): eight hues told apart with any colour vision; here darkened or
lightened until each stands out from its own background by at least 3:1 (WCAG 2.2, 1.4.11).
"""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "rule": "#dfe3e8",
    "ink": "#16202c",
    "muted": "#566270",
    "grid": "#e7eaee",
    "shade": "#8593a3",
    "accent": "#1f5f99",
    "critical": "#b3261e",
    "warning": "#8a5a00",
    "note": "#1f5f99",
    "blue": "#1f6fb2",
    "vermilion": "#cf5410",
    "green": "#0b8a66",
    "amber": "#b07c00",
    "purple": "#a8558f",
    "sky": "#3592c4",
    "slate": "#6b7785",
    "brown": "#7a4f2a",
    "indigo": "#4b4fa3",
    "olive": "#6d7f1f",
}
DARK = {
    "paper": "#12171d",
    "panel": "#1a2129",
    "rule": "#303a45",
    "ink": "#e8edf2",
    "muted": "#a3afbb",
    "grid": "#27303a",
    "shade": "#8b98a6",
    "accent": "#7db7ea",
    "critical": "#ff8a80",
    "warning": "#f0bd5a",
    "note": "#7db7ea",
    "blue": "#5aa9e6",
    "vermilion": "#ff8f57",
    "green": "#3fc79f",
    "amber": "#eab84a",
    "purple": "#dd9acb",
    "sky": "#93d0f2",
    "slate": "#98a4b1",
    "brown": "#c79a70",
    "indigo": "#a3a6f0",
    "olive": "#b5c75e",
}
SERIES = ("blue", "vermilion", "green", "amber", "purple", "sky", "slate", "brown", "indigo", "olive")
"""Hues for series, in the order of use."""


def make_rules() -> str:
    """Return the style rules that define the colours of a page, and a class for each hue."""
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in colours.items()) for colours in (LIGHT, DARK))
    hues = "".join(f".hue-{name}{{--hue:var(--{name})}}" for name in LIGHT)
    # Paper is always light: the dark colours apply to screens only.
    return (
        f":root{{{light}color-scheme:light}}@media screen and (prefers-color-scheme:dark)"
        f"{{:root{{{dark}color-scheme:dark}}}}{hues}"
    )
