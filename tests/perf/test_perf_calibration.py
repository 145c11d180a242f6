"""Calibrations: paces, measured forecasts, JSON and its age, the cache, and a probe of real groups."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from own_time import OwnTime
from thinwire.errors import LabError
from thinwire.groups import wrappers as emulated
from thinwire.groups.base import Group
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.groups.wrappers import Emulated
from thinwire.groups.wrappers import Link as EmulatedLink
from thinwire.perf import collectives, store
from thinwire.perf import fit as measured
from thinwire.perf.calibration import MAX_AGE_S, Calibration, CodecSpeed
from thinwire.perf.codec_probe import Load, Timed, _coefficients
from thinwire.perf.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_HALF,
    ALL_TO_ALL,
    BROADCAST,
    SMALL_BYTES,
    Collective,
)
from thinwire.perf.fit import bucket_layers, forecast_measured
from thinwire.perf.link import STEEPEST, LinkModel, Timing, Topology, link_named
from thinwire.perf.link_probe import EXCHANGE, INSIDE
from thinwire.perf.network import LAST, Compute, Layer, ddp_buckets
from thinwire.perf.networks import network_named
from thinwire.perf.store import probe, probe_codecs, probe_link
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model
from thinwire.tensors import Spec

CPU = torch.device("cpu")
KINDS = (ALL_REDUCE, ALL_REDUCE_HALF, ALL_TO_ALL, ALL_GATHER, BROADCAST)
BUCKETS = ((Layer("fc.weight", (100, 100)), Layer("fc.bias", (100,))),)


def paced(latency_s: float, bytes_per_s: float, speeds: dict[str, CodecSpeed] | None = None) -> Calibration:
    """A group in which every kind of act takes latency + bytes / rate."""
    at = (4, 1_000_004)
    timings = tuple(Timing(kind, at, tuple(latency_s + n / bytes_per_s for n in at)) for kind in KINDS)
    free = {key: CodecSpeed() for key in ("terngrad", "dense", "dense sharded")}
    link = LinkModel("measured", latency_s, bytes_per_s, timings=timings)
    return Calibration(link, 4, "a machine", time.time(), speeds or free, contends=0.0)


def test_a_timing_is_straight_between_its_points_and_goes_on_behind_them() -> None:
    timing = Timing(ALL_REDUCE, (100, 200, 400), (1.0, 2.0, 2.5))
    assert [timing.seconds(n) for n in (0, 100, 150, 300, 400, 800)] == [1.0, 1.0, 1.5, 2.25, 2.5, 3.5]
    assert Timing.from_json(json.loads(json.dumps(timing.to_json()))) == timing


def test_a_timing_never_falls_and_refuses_nonsense() -> None:
    assert Timing.of(ALL_REDUCE, (1, 2, 3), (2.0, 1.0, 3.0)).taken_s == (2.0, 2.0, 3.0)
    # two sizes that took as long say little of longer ones, and never that these cost nothing
    flat = Timing.of(ALL_REDUCE, (1376, 21856), (0.0119, 0.0119))
    assert flat.bytes_per_s == pytest.approx(STEEPEST * 21856 / 0.0119)
    assert flat.seconds(11e6) > 0.5
    company = Timing.of(ALL_REDUCE, (1, 2), (1.0, 2.0), (0.5, 3.0), (-1.0, 9.0))
    assert company.busy.taken_s == (1.0, 3.0)
    assert company.lost is not None
    assert company.lost.taken_s == (0.0, 3.0)
    for nbytes, taken in (((), ()), ((1, 2), (1.0,)), ((2, 1), (1.0, 1.0)), ((1,), (-1.0,))):
        with pytest.raises(LabError, match="timing of all_reduce"):
            Timing(ALL_REDUCE, nbytes, taken)


def test_what_was_measured_goes_before_the_formula() -> None:
    link = replace(link_named("1gbit"), timings=(Timing(ALL_TO_ALL, (1 << 20,), (7.0,)),))
    topology = Topology(4, 1, link, link)
    assert collectives.seconds(topology, Collective(ALL_TO_ALL, 100)) == 7.0
    assert (
        collectives.seconds(topology, Collective(ALL_GATHER, SMALL_BYTES)) == 7.0
    )  # goes straight to every peer
    formula = collectives.all_gather(topology, SMALL_BYTES + 1)
    assert collectives.seconds(topology, Collective(ALL_GATHER, SMALL_BYTES + 1)) == formula


COMPUTE = Compute(8, 1.0, 2.0, (2.0,))


def nested_s(inside: Calibration, codec: str = "terngrad") -> float:
    """A step of 4 leaders on a slow link."""
    (made,) = forecast_measured([codec], BUCKETS, 4, paced(0.01, 1e5), COMPUTE, inside)
    return made.step_s


def test_a_node_of_one_worker_and_one_that_is_infinitely_fast_inside_are_flat() -> None:
    (flat,) = forecast_measured(["terngrad"], BUCKETS, 4, paced(0.01, 1e5), COMPUTE)
    assert nested_s(replace(paced(9.0, 1.0), world=1)) == flat.step_s
    assert nested_s(replace(paced(0.0, 1e30), world=2)) == pytest.approx(flat.step_s)


def test_what_was_measured_inside_a_node_is_in_the_forecast() -> None:
    """A sum in rank order is an all-to-all of 40,400 bytes and an all-gather of 20,200; then a broadcast."""
    inside, fast = replace(paced(0.5, 1e6), world=2), replace(paced(0.0, 1e30), world=2)
    added = 3 * 0.5 + (40_400 + 20_200 + 40_400) / 1e6
    for codec in ("terngrad", "dense"):
        assert nested_s(inside, codec) - nested_s(fast, codec) == pytest.approx(added)


def test_the_inside_of_a_node_is_probed_with_what_happens_there() -> None:
    def work(group: ThreadGroup) -> Calibration:
        return probe_link(group, CPU, 0.05, company=False, kinds=INSIDE)

    first, second = run_ranks(2, work)
    assert first == second
    assert [timing.kind for timing in first.link.timings] == list(INSIDE)
    assert first.world == 2


def test_plans_made_ahead_are_those_of_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is done before it comes to deciding: a forecast then makes no plan."""
    buckets = ((Layer("odd.weight", (123, 77)), Layer("odd.bias", (123,))),)
    measured.plan_ahead(["terngrad"], buckets, 4)
    monkeypatch.setattr(Plan, "of", None)
    assert forecast_measured(["ddp", "terngrad"], buckets, 4, paced(0.0, 1e9), COMPUTE)[1].step_s > 0


def test_three_buckets_give_an_element_a_tensor_and_a_call() -> None:
    def timed(load: Load) -> Timed:
        parts = {"rest": 3e-3 + 2e-3 * load.num_tensors, "encode": 4e-6 * load.numel}
        return Timed(load, {**parts, "merge": 1e-6 * load.numel, "decode": 2e-6 * load.numel})

    loads = [Load(1, (100, 100)), Load(1, (10, 10)), Load(24, (10, 10))]
    found = _coefficients([timed(load) for load in loads])
    assert found == pytest.approx([0.0, 4e-6, 1e-6, 2e-6, 2e-3, 3e-3])


def test_a_measured_forecast_is_the_sum_of_its_parts() -> None:
    """One bucket, ready at the end of the backward pass: what the exchange takes is added."""
    compute = Compute(8, 1.0, 2.0, (2.0,))
    (ddp,) = forecast_measured(["ddp"], BUCKETS, 4, paced(0.25, 1e6), compute)
    assert ddp.step_s == pytest.approx(3.0 + 0.25 + (4 * 10_100 - 4) / 1e6 + 4e-6)
    speed = CodecSpeed(prepare=1e-6, encode=2e-6, merge=3e-6, decode=4e-6, tensor=1e-3, part=1e-2)
    only = paced(0.0, 1e30, {"terngrad": speed, "dense sharded": CodecSpeed()})
    (terngrad,) = forecast_measured(["terngrad"], BUCKETS, 4, only, compute)
    assert terngrad.step_s == pytest.approx(3.0 + 10_000 * 10e-6 + 1e-3 + 1e-2)


def test_without_latency_and_with_endless_bandwidth_only_computing_is_left() -> None:
    compute = Compute(8, 1.0, 2.0, (2.0,))
    for made in forecast_measured(["ddp", "dense", "terngrad"], BUCKETS, 4, paced(0.0, 1e30), compute):
        assert made.step_s == pytest.approx(3.0)


def test_a_codec_that_was_not_probed_is_named() -> None:
    compute = Compute(8, 1.0, 2.0, (2.0,))
    with pytest.raises(LabError, match=r"topk:0\.01 was not measured.*has dense, dense sharded, terngrad"):
        forecast_measured(["topk:0.01"], BUCKETS, 4, paced(0.0, 1e9), compute)


def test_buckets_by_names_know_the_last_layer() -> None:
    model = Model((Spec("a", (2, 3)), Spec("b", (4,))), last=frozenset({"b"}))
    assert bucket_layers(model, [["b"], ["a"]]) == ((Layer("b", (4,), kind=LAST),), (Layer("a", (2, 3)),))


def test_deciding_takes_less_than_50_ms() -> None:
    """For a network of ResNet-50's size, after the first call."""
    buckets = ddp_buckets(network_named("resnet50").layers)
    compute = Compute(8, 1.0, 2.0, tuple(2.0 * (k + 1) / len(buckets) for k in range(len(buckets))))
    codecs = ["ddp", "dense", "terngrad"]
    times = []
    for _ in range(4):
        start = time.process_time()
        forecast_measured(codecs, buckets, 8, paced(1e-4, 1e8), compute)
        times.append(time.process_time() - start)
    assert min(times[1:]) < 0.05


def test_json_there_and_back() -> None:
    made = paced(1e-3, 1e8, {"topk:0.01": CodecSpeed(encode=1e-9, tensor=1e-5)})
    assert Calibration.from_json(json.loads(json.dumps(made.to_json()))) == made
    with pytest.raises(LabError, match=r"version 0.*measure anew"):
        Calibration.from_json({**made.to_json(), "version": 0})


def test_a_calibration_grows_old() -> None:
    made = replace(paced(0.0, 1e9), made_s=1000.0)
    assert made.age_s(now_s=1060.0) == 60.0
    assert not made.expired(now_s=1000.0 + MAX_AGE_S)
    assert made.expired(now_s=1001.0 + MAX_AGE_S)
    assert made.expired(now_s=999.0)  # from the future


@pytest.mark.parametrize("size", [1])
def test_a_group_of_one_has_no_link(size: int) -> None:
    (group,) = ThreadGroup.make(size)
    for call in (
        lambda: probe_link(group),
        lambda: probe_codecs(group, CPU, ["terngrad"]),
        lambda: probe(group, CPU, ["terngrad"]),
        lambda: store.calibrated(group, CPU, ["terngrad"]),
    ):
        with pytest.raises(LabError, match=r"group of 1 measures nothing.*at least 2 workers"):
            call()


def test_all_ranks_hold_the_same_numbers_and_phases_are_apart() -> None:
    codecs = ["gradiveq:8", "topk:0.01"]
    one, two = run_ranks(2, lambda group: probe(group, CPU, codecs, numel=90_000, seconds=0.4))
    assert one == two
    assert set(one.speeds) == {
        "gradiveq:8 sample",
        "gradiveq:8 project",
        "topk:0.01",
        "dense",
        "dense sharded",
    }
    assert all(speed.an_element >= 0 and speed.part >= 0 for speed in one.speeds.values())
    assert 0 <= one.contends <= 1
    for timing in one.link.timings:
        assert all(busy >= alone for busy, alone in zip(timing.busy_s, timing.taken_s, strict=True))
        assert all(lost <= busy for lost, busy in zip(timing.lost_s, timing.busy_s, strict=True))
    assert {timing.kind for timing in one.link.timings} == set(EXCHANGE)


def _quiet_probe(group: Group, own_time: OwnTime) -> Calibration:
    return probe_link(group, seconds=0.8, company=False, clock=own_time.perf_counter)


def test_the_probe_finds_an_emulated_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings walk 2 (p-1) hops, messages to all one; both at the rate of the link."""
    own_time = OwnTime()
    monkeypatch.setattr(emulated, "time", own_time)
    link = EmulatedLink("100mbit", latency_s=0.005)
    made = run_ranks(2, lambda group: _quiet_probe(Emulated(group, link), own_time))[0]
    ring, straight = made.link.timing(ALL_REDUCE), made.link.timing(ALL_TO_ALL)
    assert ring is not None
    assert straight is not None
    assert 0.010 <= ring.latency_s < 0.011
    assert 0.005 <= straight.latency_s < 0.006
    assert made.link.bytes_per_s == pytest.approx(12.5e6, rel=0.02)


def test_the_cache_is_used_until_it_is_old(tmp_path: Path) -> None:
    def once(group: ThreadGroup) -> Calibration:
        return store.calibrated(group, CPU, ["terngrad"], folder=tmp_path, seconds=0.1)

    first, _ = run_ranks(2, once)
    assert run_ranks(2, once) == [first, first]
    (path,) = tmp_path.iterdir()
    store.save(replace(first, made_s=first.made_s - MAX_AGE_S - 1), path)
    assert run_ranks(2, once)[0].made_s >= first.made_s
    assert store.load(path) != first


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "link": 3}', "\0\1"])
def test_a_corrupt_cache_is_measured_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    assert store.load(path) is None
    assert store.load(tmp_path / "missing.json") is None
    assert store.save(paced(1e-3, 1e8), path)
    assert store.load(path) is not None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not store.save(paced(1e-3, 1e8), tmp_path / "file" / "calibration.json")


def test_what_is_probed_is_what_forecasts_ask_for() -> None:
    """Codecs with phases, in chains, with memories: keys of both sides are made by one function."""
    codecs = ["powersgd:4", "topk:0.01 >> fp16", "gradiveq:8,layers=all", "sign", "bf16"]
    made = run_ranks(2, lambda group: probe(group, CPU, codecs, numel=90_000, seconds=0.1))[0]
    buckets = ((Layer("fc1.weight", (1024, 512)), Layer("fc1.bias", (1024,))),)
    forecasts = forecast_measured(codecs, buckets, 2, made, Compute(8, 1.0, 2.0, (2.0,)))
    assert [one.codec for one in forecasts] == codecs
    assert all(one.step_s >= 3.0 for one in forecasts)
    names = {key for key in made.speeds if store._is_of(key, "topk:0.01 >> fp16")}
    assert names == {"topk:0.01 >> fp16"}
    assert not any(store._is_of(key, "topk:0.01") for key in made.speeds)
