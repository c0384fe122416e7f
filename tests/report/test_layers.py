"""What the table of layers says of each: what was proven is never called undecided, and nothing is said twice."""

from __future__ import annotations

from pgdyno.report.sections.layers import layers_table
from tests.report.build_derived import build_layers


def test_each_layer_has_one_word() -> None:
    table = layers_table(build_layers())
    assert table is not None
    verdicts = {row[0].text: (row[2].text, row[2].detail) for row in table.rows}
    assert verdicts["kernel"] == ("= equivalent", "within ±3 %")
    assert verdicts["planner"] == ("? undecided here", "")
    assert verdicts["memory"] == ("▲ keep", "")
