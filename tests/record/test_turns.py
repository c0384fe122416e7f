"""What pgbench printed in the turns of one load, read as what one run would have printed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.record.generators.turns import find_turn_folders, merge_turns, name_turn
from pgdyno.record.pgbench.output import PgbenchSummary, parse_summary

OUTPUT = Path(__file__).parents[1] / "data/pgbench/18"


def printed(name: str) -> PgbenchSummary:
    return parse_summary((OUTPUT / name / "pgbench.stdout").read_text())


def with_times(turn: PgbenchSummary, ratio: float) -> PgbenchSummary:
    """A turn with as many transactions in so many times the time."""
    scripts = tuple(msgspec.structs.replace(one, tps=(one.tps or 0.0) / ratio) for one in turn.scripts)
    return msgspec.structs.replace(turn, tps=(turn.tps or 0.0) / ratio, scripts=scripts)


def test_counts_are_sums_and_tps_are_those_of_all_the_time() -> None:
    one = printed("everything")
    assert len(one.scripts) > 1
    merged = merge_turns([one, one, with_times(one, 2.0)])
    assert merged.transaction_count == 3 * (one.transaction_count or 0)
    assert merged.failed_count == 3 * (one.failed_count or 0)
    # Three times as many in four times the time.
    assert merged.tps == pytest.approx(0.75 * (one.tps or 0.0))
    for script, of_one in zip(merged.scripts, one.scripts, strict=True):
        assert (script.number, script.name, script.weight) == (of_one.number, of_one.name, of_one.weight)
        assert script.transaction_count == 3 * (of_one.transaction_count or 0)
        assert script.tps == pytest.approx(0.75 * (of_one.tps or 0.0))
    # It is one load, whose clients come again.
    assert (merged.client_count, merged.thread_count) == (one.client_count, one.thread_count)
    assert merged.latency_average_ms == pytest.approx(one.latency_average_ms)
    assert merged.initial_connection_time_ms == one.initial_connection_time_ms


def test_a_turn_in_which_no_transaction_ended_takes_nothing_from_the_others() -> None:
    one, idle = printed("everything"), printed("divide")
    assert (idle.transaction_count, idle.is_complete, idle.scripts) == (0, False, ())
    for turns in ([one, idle, one], [idle, one, one]):
        assert merge_turns(turns) == merge_turns([one, one])
    assert merge_turns([idle, idle]).transaction_count == 0
    # Where all failed, pgbench prints a rate of 0.
    failed = msgspec.structs.replace(one, transaction_count=0, failed_count=5, tps=0.0)
    merged = merge_turns([one, failed])
    assert (merged.transaction_count, merged.failed_count) == (one.transaction_count, (one.failed_count or 0) + 5)
    assert merged.tps == pytest.approx(one.tps)
    assert merge_turns([failed, failed]).tps == 0.0


def test_turns_of_which_one_was_cut_off_are_no_whole_load() -> None:
    one = printed("everything")
    text = (OUTPUT / "everything/pgbench.stdout").read_text()
    for cut in ("", text[: text.index("number of transactions actually")]):
        assert not merge_turns([one, parse_summary(cut)]).is_complete
        assert not merge_turns([parse_summary(cut), one]).is_complete


def test_folders_come_in_the_order_of_their_turns(tmp_path: Path) -> None:
    assert find_turn_folders(tmp_path) == ()
    numbers = (1, 2, 10, 999, 1000)
    for number in reversed(numbers):
        name_turn(tmp_path, number).mkdir(parents=True)
    assert name_turn(tmp_path, 7) == tmp_path / "turns/007"
    assert find_turn_folders(tmp_path) == tuple(name_turn(tmp_path, number) for number in numbers)
