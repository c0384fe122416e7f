"""What `pgbench -i` of 15, 16 and 18 said. 17 was read in its source only: it prints what 18 does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.record.pgbench.init import (
    InitProgress,
    InitStep,
    InitSteps,
    is_init_line,
    parse_init,
    parse_init_progress,
    split_lines,
)
from tests.record.pgbench_captures import INITS, MAJORS, Capture
from tests.rows import each_row

GOOD = tuple(capture for capture in INITS if capture.exit_code == 0)
STEP_NAMES = ("drop tables", "create tables", "client-side generate", "server-side generate", "vacuum", "primary keys")


@each_row(GOOD)
def test_every_line_of_good_loading_is_known(capture: Capture) -> None:
    unknown = [line for line in split_lines(capture.stderr) if not is_init_line(line) and "NOTICE:" not in line]
    assert unknown == []


@each_row(GOOD)
def test_steps_are_those_asked_for_and_add_up(capture: Capture) -> None:
    steps = parse_init(capture.stderr)
    assert steps is not None
    # Each step is rounded to 10 ms, and so is the total.
    assert sum(step.duration_s for step in steps.steps) == pytest.approx(
        steps.total_s, abs=0.005 * (len(steps.steps) + 1.01)
    )
    letters = {name: letter for letter, name in zip("dtgGvp", STEP_NAMES, strict=True)} | {"foreign keys": "f"}
    match = re.search(r"-I (\w+)", " ".join(capture.argv))
    wanted = match[1] if match else "dtgvp"
    if "--foreign-keys" in capture.argv:
        wanted += "f"
    assert "".join(letters[step.name] for step in steps.steps) == wanted


@pytest.mark.parametrize("major", MAJORS)
def test_a_step_that_ran_twice_is_there_twice_and_summed(major: int) -> None:
    steps = parse_init(Capture(major, "init-twice-vacuum").stderr)
    assert steps is not None
    vacuums = [step.duration_s for step in steps.steps if step.name == "vacuum"]
    assert len(vacuums) == 2
    assert steps.step_durations_s["vacuum"] == pytest.approx(sum(vacuums))


@each_row([capture for capture in INITS if capture.exit_code != 0])
def test_loading_that_failed_has_no_times(capture: Capture) -> None:
    assert parse_init(capture.stderr) is None


@pytest.mark.parametrize("name", ["init", "init-terminal"])
@pytest.mark.parametrize("major", MAJORS)
def test_rows_are_counted_in_lines_and_on_a_terminal(major: int, name: str) -> None:
    capture = Capture(major, name)
    assert ("\r" in capture.stderr) == (name == "init-terminal")
    read = [parse_init_progress(line) for line in split_lines(capture.stderr)]
    rows = [progress for progress in read if progress is not None and progress.row_count is not None]
    assert [progress.row_count for progress in rows] == [100_000, 200_000, 300_000]
    assert [progress.percent for progress in rows] == pytest.approx([100 / 3, 200 / 3, 100])
    assert {progress.table for progress in rows} == ({"pgbench_accounts"} if major >= 17 else {None})
    assert rows[-1].remaining_s == 0.0
    steps = [progress.step for progress in read if progress is not None and progress.row_count is None]
    assert steps == ["drop tables", "create tables", "client-side generate", "vacuum", "primary keys"]


def test_partitions_are_a_part_of_the_story() -> None:
    read = [parse_init_progress(line) for line in split_lines(Capture(18, "init-partitions-hash").stderr)]
    assert InitProgress(step="create partitions") in read


DURATIONS = st.integers(0, 10**7).map(lambda hundredths: hundredths / 100)


@given(
    total_s=DURATIONS,
    steps=st.lists(st.tuples(st.sampled_from([*STEP_NAMES, "foreign keys"]), DURATIONS), min_size=1, max_size=9),
)
def test_times_are_read_as_printed(total_s: float, steps: list[tuple[str, float]]) -> None:
    text = ", ".join(f"{name} {duration_s:.2f} s" for name, duration_s in steps)
    line = f"done in {total_s:.2f} s ({text})."
    expected = InitSteps(total_s=total_s, steps=tuple(InitStep(name=name, duration_s=d) for name, d in steps))
    assert parse_init(f"vacuuming...\n{line}\n") == expected
    assert parse_init(line[:-1]) is None


@given(st.sampled_from(INITS), st.floats(0, 1))
def test_cut_text_gives_no_false_time(capture: Capture, share: float) -> None:
    whole = capture.stderr
    assert parse_init(whole[: round(share * len(whole))]) in {None, parse_init(whole)}


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    progress = parse_init_progress(text)
    assert progress is None or is_init_line(text)
