from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.disk.credits import find_credits, plan_uses, predict_ends
from pgdyno.analyse.models.credits import Bucket, Use, find_end, spend
from pgdyno.explain.doubts.credits import describe_end
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.spec.host import parse_host
from pgdyno.spec.read import make_study

BUCKETS = st.builds(
    lambda base, more, seconds, refill: Bucket(
        capacity=more * seconds, baseline=base, burst=base + more, refill=refill
    ),
    st.integers(1, 500),
    st.integers(1, 500),
    st.integers(1, 200),
    st.integers(1, 500),
)
USES = st.lists(st.builds(Use, seconds=st.integers(0, 60), rate=st.integers(0, 1200)), max_size=12)


def step_by_step(bucket: Bucket, uses: list[Use]) -> tuple[int, float] | None:
    """The same, a second at a time, from an account that is checked before each withdrawal."""
    left, passed_s = bucket.capacity, 0.0
    for number, use in enumerate(uses):
        rate = min(use.rate, bucket.burst)
        if rate > bucket.baseline and left == 0:
            return number, passed_s
        for _ in range(round(use.seconds)):
            drawn = rate - bucket.baseline
            if drawn > 0 and left <= drawn:
                return number, passed_s + left / drawn
            left = min(bucket.capacity, left - drawn if drawn > 0 else left + min(-drawn, bucket.refill))
            passed_s += 1
    return None


@given(bucket=BUCKETS, uses=USES)
def test_the_bucket_ends_where_one_of_single_seconds_does(bucket: Bucket, uses: list[Use]) -> None:
    found, expected = find_end(bucket, uses), step_by_step(bucket, uses)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1])


def test_a_balance_is_never_more_than_the_bucket_holds_nor_negative() -> None:
    bucket = Bucket(capacity=100, baseline=10, burst=20, refill=5)
    assert spend(bucket, 100, Use(seconds=1000, rate=0)).credits == 100
    assert spend(bucket, 20, Use(seconds=4, rate=0)).credits == 40
    assert spend(bucket, 20, Use(seconds=4, rate=8)).credits == 28
    assert spend(bucket, 20, Use(seconds=4, rate=500)).ended_s == 2
    assert spend(bucket, 0, Use(seconds=4, rate=10)).ended_s is None
    for values in ({"capacity": 0}, {"burst": 10}, {"refill": -1}):
        with pytest.raises(ValueError, match="is"):
            Bucket(**{"capacity": 1.0, "baseline": 10.0, "burst": 20.0, "refill": 1.0, **values})


def test_the_published_time_of_a_volume_and_of_an_instance() -> None:
    """Source: Amazon EBS user guide: a gp2 volume of 100 GiB bursts for 2,000 s; of instances, 30 minutes."""
    host = parse_host('instance = "r8g.large"\n[disk]\nvolume = "gp2"\nsize = "100GB"\n', source="test")
    volume, iops, rate = find_credits(host)
    ends = [find_end(one.bucket, [Use(seconds=86_400, rate=one.bucket.burst)]) for one in (volume, iops, rate)]
    assert [end and round(end[1]) for end in ends] == [2000, 1800, 1800]
    assert (volume.what, volume.unit, rate.what, rate.unit) == ("the gp2 volume", "1/s", "r8g.large", "bytes/s")
    eight = parse_host(
        'instance = "r8g.large"\n[disk]\nvolume = "gp2"\nsize = "100GB"\ncount = 8\nraid = 10\n', source="test"
    )
    assert find_credits(eight)[0].bucket.capacity == 8 * 5_400_000
    for text in (
        'instance = "r8g.large"\ninstance_iops = 3600\ninstance_mb_s = 78\n[disk]\nvolume = "gp3"\nsize = "100GB"\n',
        'instance = "r8g.large"\n[disk]\nkind = "local-ssd"\n',
        'instance = "ecs.g8y.xlarge"\n[disk]\nvolume = "gp3"\nsize = "100GB"\n',
        'instance = "r8g.large"\n',
    ):
        assert find_credits(parse_host(text, source="test")) == ()


def test_a_plan_says_in_which_trial_the_credits_end() -> None:
    machine = Machine(
        version_major=18, cpu_count=2, memory_bytes=16 << 30, disk_free_bytes=200_000_000_000, read_bytes_per_s=80e6
    )
    raw = {
        "workload": [{"name": "tpcb-like"}],
        "data": {"scale": 20},
        "trials": {"rounds": 30, "duration": "120s"},
        "host": {"instance": "r8g.large", "disk": {"volume": "gp2", "size": "100GB"}},
    }
    study = make_study(raw, source="test", folder=Path())
    assert study.host is not None
    plan = plan_study(study, machine)
    volume, iops, rate = predict_ends(find_credits(study.host), plan_uses(plan, study.host))
    # 2,000 s of load above the baseline are over in the 17th trial of 125 s; restoring and starting earn some.
    assert volume.trial == 17
    assert volume.after_s == pytest.approx(2000, rel=0.1)
    assert describe_end(volume).startswith(
        "burst of the gp2 volume (3,000 IOPS, of which 300 last): its credits end after about 3"
    )
    assert "in trial 17, if they are full now" in describe_end(volume)
    assert iops.after_s is None
    assert describe_end(iops).endswith("its credits outlast this study")
    assert "MB/s, of which 79 MB/s last" in describe_end(rate)
