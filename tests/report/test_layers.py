"""What the table of layers says of each: what was proven is never called undecided."""

from __future__ import annotations

from pgdyno.report.sections.layers import layers_table
from tests.report.build_derived import build_layers


def test_a_proven_equivalence_is_not_called_undecided() -> None:
    table = layers_table(build_layers())
    assert table is not None
    verdicts = {row[0].text: (row[2].text, row[2].detail) for row in table.rows}
    assert verdicts["kernel"] == ("= equivalent", "within ±3 %")
    assert verdicts["planner"][0] == "? undecided here"
    assert verdicts["memory"][0] == "▲ keep"
