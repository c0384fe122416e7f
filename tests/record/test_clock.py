from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.record.samples.clock import ClockExchange, append_exchanges, fit_clock, read_exchanges

SMALL = st.floats(1e-5, 0.05)


@st.composite
def planted(draw: st.DrawFn) -> tuple[float, float, list[ClockExchange]]:
    """Exchanges with a clock of a known offset and drift, whose two ways take unequally long."""
    offset_s = draw(st.sampled_from([0.0, 1000.0, -1000.0, 3.5e6]))
    drift_ratio = draw(st.floats(-2e-4, 2e-4))
    exchanges, at_s = [], 5000.0
    for burst in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(1, 8))):
            there_s, back_s = draw(SMALL), draw(SMALL)
            far_s = at_s + there_s
            far_s += offset_s + drift_ratio * far_s
            exchanges.append(ClockExchange(burst=burst, sent_s=at_s, far_s=far_s, received_s=at_s + there_s + back_s))
            at_s += there_s + back_s + 1e-4
        at_s += 10.0
    return offset_s, drift_ratio, exchanges


@settings(max_examples=200)
@given(planted())
def test_the_offset_is_never_wrong_by_more_than_its_bound(made: tuple[float, float, list[ClockExchange]]) -> None:
    offset_s, drift_ratio, exchanges = made
    fit = fit_clock(exchanges)
    # Within a burst the clocks drift, too: 0.2 ms in a second here.
    slack_s = 2e-4 * 1.0 + 1e-6
    bursts = [[one for one in exchanges if one.burst == number] for number in {one.burst for one in exchanges}]
    quickest = [min(burst, key=lambda one: one.round_trip_s) for burst in bursts]
    times_s = np.linspace(min(one.middle_s for one in quickest), max(one.middle_s for one in quickest), 7)
    true_s = offset_s + drift_ratio * times_s
    assert np.abs(fit.offset_at(times_s) - true_s).max() <= fit.uncertainty_s + slack_s
    assert np.abs(fit.to_near(times_s + fit.offset_at(times_s)) - times_s).max() < 1e-6
    assert fit.exchange_count == len(exchanges)


def test_only_the_quickest_of_a_burst_counts() -> None:
    slow = ClockExchange(burst=0, sent_s=10.0, far_s=20.9, received_s=11.0)
    quick = ClockExchange(burst=0, sent_s=11.0, far_s=21.001, received_s=11.002)
    fit = fit_clock([slow, quick])
    assert (fit.offset_s, fit.uncertainty_s, fit.drift_ratio) == pytest.approx((10.0, 0.001, 0.0))


def test_none_is_no_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no exchange"):
        fit_clock([])
    one = ClockExchange(burst=0, sent_s=1.0, far_s=1.5, received_s=2.0)
    append_exchanges(tmp_path / "clock", [one])
    append_exchanges(tmp_path / "clock", [one])
    assert read_exchanges(tmp_path / "clock") == (one, one)
    (tmp_path / "clock").write_bytes(b"[1,2\n")
    with pytest.raises(ValueError, match="truncated"):
        read_exchanges(tmp_path / "clock")
