from __future__ import annotations

import pytest

from pgdyno.report.lists import join_by_place, split_shared_end

END = "had all who wait for one a CPU; expected, not measured"


def test_what_all_end_in_is_told_once() -> None:
    told = [
        ("tpcb-like", f"up to +86 % TPS [+84, +89], {END}"),
        ("select-only", f"up to +165 % TPS [+163, +172], {END}"),
    ]
    assert join_by_place(told) == (
        f"tpcb-like: up to +86 % TPS [+84, +89]; select-only: up to +165 % TPS [+163, +172], {END}"
    )


@pytest.mark.parametrize(
    ("texts", "parts", "end"),
    [
        (
            ("1 ms: a long explanation of it", "2 ms: a long explanation of it"),
            ("1 ms", "2 ms"),
            "a long explanation of it",
        ),
        # An interval is not cut at its comma, though both end alike.
        (("[+84, +89], as was said", "[+77, +89], as was said"), None, ""),
        (
            ("[+84, +89], as it was said before", "[+77, +89], as it was said before"),
            ("[+84, +89]", "[+77, +89]"),
            "as it was said before",
        ),
        # Short ends, whole texts and single ones stay as they are.
        (("1 ms, of it", "2 ms, of it"), None, ""),
        (("a long explanation of nothing", "a long explanation of nothing"), None, ""),
        (("1 ms: a long explanation of it",), None, ""),
        ((), None, ""),
    ],
)
def test_an_end_begins_where_a_clause_does(texts: tuple[str, ...], parts: tuple[str, ...] | None, end: str) -> None:
    assert split_shared_end(texts) == (parts if end else texts, end)
