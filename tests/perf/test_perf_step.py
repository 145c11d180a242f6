"""The queue of buckets behind the backward pass: what overlaps, what does not, and the limits."""

from __future__ import annotations

import pytest

from thinwire.perf.forecast import Beside, BucketTimes, PartTimes, step_times


def wire(ready: float, *outs: float) -> BucketTimes:
    return BucketTimes(ready, (tuple(PartTimes(out=out) for out in outs),))


def test_no_buckets_is_computing_alone() -> None:
    times = step_times(1.0, 2.0, [])
    assert (times.step_s, times.exposed_s, times.hidden_s) == (3.0, 0.0, 0.0)


def test_what_ends_before_the_backward_pass_is_hidden() -> None:
    times = step_times(1.0, 2.0, [wire(0.5, 1.0)])
    assert times.step_s == 3.0
    assert times.hidden_s == 1.0


def test_the_last_bucket_is_exposed() -> None:
    assert step_times(1.0, 2.0, [wire(2.0, 1.5)]).step_s == pytest.approx(4.5)


def test_buckets_wait_for_the_one_before() -> None:
    times = step_times(0.0, 2.0, [wire(1.0, 3.0), wire(2.0, 1.0)])
    assert times.step_s == pytest.approx(5.0)
    assert times.hidden_s == pytest.approx(1.0)


def test_parts_are_encoded_while_others_travel() -> None:
    """encode 1, travel 2, four times: 1 + 4 x 2; each with a decode of 1, of which the last is exposed."""
    parts = tuple(PartTimes(encode=1.0, out=2.0, decode=1.0) for _ in range(4))
    assert BucketTimes(0.0, (parts,)).taken_s == pytest.approx(1 + 8 + 1)
    whole = (PartTimes(encode=4.0, out=8.0, decode=4.0),)
    assert BucketTimes(0.0, (whole,)).taken_s == pytest.approx(16)


def test_slow_encoding_sets_the_pace() -> None:
    parts = tuple(PartTimes(encode=2.0, out=1.0) for _ in range(3))
    assert BucketTimes(0.0, (parts,)).taken_s == pytest.approx(7)


def test_sums_come_back_behind_the_merge() -> None:
    part = PartTimes(encode=1.0, out=2.0, keep=0.5, merge=3.0, back=4.0, decode=5.0)
    assert BucketTimes(0.0, ((part,),)).taken_s == pytest.approx(1 + 2 + 3 + 4 + 5)
    late = PartTimes(encode=1.0, out=2.0, keep=9.0, merge=3.0, back=4.0, decode=5.0)
    assert BucketTimes(0.0, ((late,),)).taken_s == pytest.approx(1 + 9 + 3 + 4 + 5)


def test_two_way_parts_share_the_wire() -> None:
    """Both parts go out (2 + 2), then both come back: the wire is never idle from the first on."""
    parts = tuple(PartTimes(out=2.0, back=3.0) for _ in range(2))
    assert BucketTimes(0.0, (parts,)).taken_s == pytest.approx(2 + 2 + 3 + 3)


def shared(buckets: list[BucketTimes], contends: float, wire_contends: float) -> list[Beside]:
    return [Beside.shared(bucket, contends, wire_contends) for bucket in buckets]


def test_routes_follow_each_other() -> None:
    bucket = BucketTimes(
        0.0, ((PartTimes(out=1.0),), (PartTimes(out=2.0),)), prepare=0.25, agree=0.5, finish=4.0
    )
    assert bucket.taken_s == pytest.approx(0.25 + 0.5 + 1 + 2 + 4)
    assert bucket.codec_s == pytest.approx(4.25)
    assert bucket.wire_s == pytest.approx(3.5)


def test_inside_a_node_comes_before_and_after() -> None:
    bucket = BucketTimes(1.0, ((PartTimes(out=1.0),),), before=2.0, after=3.0)
    assert step_times(0.0, 1.0, [bucket]).step_s == pytest.approx(7)


def test_a_codec_that_contends_gains_nothing_by_overlap() -> None:
    """All of its time is added to computing; with a core of its own only the last bucket's is."""
    buckets = [BucketTimes(ready, ((PartTimes(encode=0.5),),)) for ready in (1.0, 2.0, 3.0)]
    assert step_times(1.0, 3.0, buckets, shared(buckets, 1.0, 0.0)).step_s == pytest.approx(1 + 3 + 1.5)
    assert step_times(1.0, 3.0, buckets, shared(buckets, 0.0, 0.0)).step_s == pytest.approx(1 + 3 + 0.5)


def test_a_wire_that_processors_move_holds_up_the_backward_pass() -> None:
    """What overlaps is not gained: compute and wire one behind the other, at most."""
    for buckets in ([wire(1.0, 1.0), wire(3.0, 0.5)], [wire(1.0, 9.0)]):
        times = step_times(1.0, 3.0, buckets, shared(buckets, 0.0, 1.0))
        assert times.step_s == pytest.approx(1 + 3 + times.wire_s)


def test_a_bucket_that_outlives_the_backward_pass_goes_on_alone() -> None:
    """2 s of the pass are left; beside it a bucket of 3 s takes 12 and holds it up by half the time."""
    times = step_times(0.0, 3.0, [wire(1.0, 3.0)], [Beside(12.0, 6.0)])
    assert times.step_s == pytest.approx(1 + 4 + (1 - 4 / 12) * 3)


def test_a_bucket_that_stops_the_backward_pass_is_served_first() -> None:
    assert step_times(0.0, 3.0, [wire(1.0, 3.0)], [Beside(4.0, 4.0)]).step_s == pytest.approx(1 + 4 + 2)


def test_where_the_time_goes_adds_up() -> None:
    part = PartTimes(encode=0.2, out=0.7, keep=0.1, merge=0.3, back=0.4, decode=0.2)
    times = step_times(0.5, 1.0, [BucketTimes(0.4, ((part, part),), prepare=0.1, agree=0.2)] * 2)
    assert times.step_s == pytest.approx(times.compute_s + times.codec_s + times.wire_s - times.hidden_s)
    assert times.hidden_s > 0
    assert max(times.compute_s, times.codec_s, times.wire_s) <= times.step_s
