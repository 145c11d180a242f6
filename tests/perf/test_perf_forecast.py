"""Forecasts: exact bytes, limits of link and cluster, phases, refusals, sweeps."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from thinwire.codecs.catalog import CATALOG
from thinwire.errors import CodecError
from thinwire.perf import collectives
from thinwire.perf.calibration import LINK_COSTS, CodecSpeed, Speeds, codec_speed, source_of
from thinwire.perf.collectives import ALL_REDUCE_MAX, Collective
from thinwire.perf.forecast import DENSE, FLAT, HIERARCHICAL, Setting, forecast
from thinwire.perf.link import LinkModel, Topology, link_named
from thinwire.perf.network import DEVICES, LAST, Layer, Network, ddp_buckets, device_named
from thinwire.perf.networks import network_named
from thinwire.perf.sweep import CODECS, Range, compare, node_counts, over_links, over_nodes, paying_range
from thinwire.perf.wire import model_of_layers, traffic
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Policy
from thinwire.tensors import Layout, Spec

GPU_PAGE = Path(__file__).parents[2] / "docs" / "background" / "gpu.md"
ETHERNET, BUS = link_named("1gbit"), link_named("pcie")
SMALL = Network(
    "small",
    (
        Layer("conv.weight", (64, 32, 3, 3), 64),
        Layer("conv.bias", (64,)),
        Layer("fc1.weight", (4096, 1024), 1),
        Layer("fc1.bias", (4096,)),
        Layer("fc2.weight", (10, 4096), 1, LAST),
    ),
)
ALL = (*CODECS, "sign", "dgc:0.01", "rangefloat:8", "qsgd:4,scales=own", "gradiveq:4,layers=all >> qsgd:8")


def setting(nodes: int = 8, gpus: int = 1, link: LinkModel = ETHERNET, network: Network = SMALL) -> Setting:
    return Setting.of(network, Topology(nodes, gpus, link, BUS), device_named("v100"), 1000.0)


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("workers", [1, 2, 7, 64])
def test_bytes_are_those_of_the_plan(codec: str, workers: int) -> None:
    """Act by act they add up to what thinwire's plan of the same buckets sends, in every phase."""
    buckets = ddp_buckets(SMALL.layers, bucket_mb=4)
    plan = Plan.of(Policy.of(codec), model_of_layers(SMALL.layers), workers)
    layouts = [Layout.packed(Spec(layer.name, layer.shape) for layer in bucket) for bucket in buckets]
    made = traffic(codec, buckets, workers)
    assert sum(one.share for one in made) == pytest.approx(1)
    mean = sum(
        one.share * collectives.sent_bytes(call, workers)
        for one in made
        for bucket in one.buckets
        for call in bucket.calls
    )
    stretches = plan.stretches(layouts)
    total = sum(stretch.num_steps for stretch in stretches)
    assert mean == pytest.approx(sum(s.num_steps * s.step_bytes for s in stretches) / total, rel=1e-12)


def test_fp16_agrees_on_a_word_a_tensor_before_it_sends() -> None:
    buckets = ddp_buckets(SMALL.layers, bucket_mb=4)
    (made,) = traffic("fp16", buckets, 8)
    for bucket, layers in zip(made.buckets, buckets, strict=True):
        assert [call for call in bucket.calls if call.kind == ALL_REDUCE_MAX] == [
            Collective(ALL_REDUCE_MAX, 4 * len(layers))
        ]
    (plain,) = traffic("bf16", buckets, 8)
    assert not [call for bucket in plain.buckets for call in bucket.calls if call.kind == ALL_REDUCE_MAX]


def test_a_large_network_at_many_workers_is_planned_bucket_by_bucket() -> None:
    """225 buckets of a 7B transformer are six different ones."""
    buckets = ddp_buckets(network_named("llama-7b").layers)
    (made,) = traffic("terngrad", buckets, 10_000)
    assert len(made.buckets) == len(buckets) > 200
    assert len(set(map(id, made.buckets))) < 10
    assert sum(bucket.numel for bucket in made.buckets) == 6_738_415_616


@pytest.mark.parametrize("codec", ALL)
def test_one_worker_exchanges_nothing(codec: str) -> None:
    made = forecast(codec, setting(nodes=1))
    assert made.step_s == pytest.approx(made.compute_s)
    assert made.sent_bytes == 0


def test_dense_is_a_ring_of_buckets() -> None:
    """Zero latency, one bucket, nothing to overlap with: compute + 2 (p-1)/p n / b."""
    link = LinkModel("no latency", 0.0, 1e6)
    made = forecast(DENSE, setting(8, link=link))
    exposed = 2 * 7 / 8 * 4 * SMALL.numel / 1e6
    assert made.step_s - made.compute_s == pytest.approx(exposed, rel=0.01)  # the first bucket overlaps


def test_an_infinite_link_leaves_computing_and_codec() -> None:
    link = LinkModel("no wire", 0.0, math.inf)
    for codec in CODECS:
        made = forecast(codec, setting(8, link=link))
        assert made.wire_s == 0
        assert made.compute_s <= made.step_s <= made.compute_s + made.codec_s + 1e-12
    assert forecast(DENSE, setting(8, link=link)).step_s == pytest.approx(SMALL.batch / 1000)


def test_a_slow_link_leaves_bytes_alone() -> None:
    """The speed-up tends to the ratio of bytes where nothing else counts."""
    link = LinkModel("slow", 0.0, 1e3)
    dense, half = (forecast(codec, setting(8, link=link)) for codec in (DENSE, "fp16"))
    assert dense.step_s / half.step_s == pytest.approx(2, rel=1e-3)
    assert dense.sent_bytes / half.sent_bytes == pytest.approx(2, rel=1e-3)


def test_time_is_monotonous() -> None:
    rates = [
        forecast("terngrad", setting(8, link=link_named(rate))).step_s
        for rate in ("100mbit", "1gbit", "10gbit")
    ]
    assert rates == sorted(rates, reverse=True)
    nodes = [forecast("topk:0.01", setting(count)).step_s for count in (1, 2, 8, 64)]
    assert nodes == sorted(nodes)


def test_phases_are_forecast_apart() -> None:
    made = forecast("gradiveq:8,layers=all", setting())
    by_name = {phase.name.split()[0]: phase for phase in made.phases}
    assert set(by_name) == {"sample", "refresh", "project"}
    assert by_name["sample"].share == pytest.approx(0.2)
    assert by_name["sample"].sent_bytes > 5 * by_name["project"].sent_bytes
    assert by_name["refresh"].times.step_s > by_name["project"].times.step_s
    assert by_name["sample"].times.codec_s == 0 < by_name["project"].times.codec_s  # sent as it is
    assert made.step_s == pytest.approx(sum(p.share * p.times.step_s for p in made.phases))


def test_the_quicker_way_is_taken() -> None:
    """A node's workers share its connection: leaders alone send less over it."""
    crowd = setting(16, gpus=8)
    flat, leaders = (forecast("terngrad", crowd, (way,)) for way in (FLAT, HIERARCHICAL))
    assert leaders.step_s < flat.step_s
    assert forecast("terngrad", crowd) == leaders
    assert forecast("terngrad", setting(16), (HIERARCHICAL,)).way == FLAT  # one worker a node: no leaders


def test_an_infinitely_fast_inside_leaves_a_flat_exchange_of_leaders() -> None:
    nothing = LinkModel("no bus", 0.0, math.inf)
    crowd = setting(16, gpus=8)
    crowd = crowd.on(replace(crowd.topology, intra=nothing))
    for codec in ("dense", "terngrad", "topk:0.01"):
        nested, leaders = forecast(codec, crowd, (HIERARCHICAL,)), forecast(codec, setting(16), (FLAT,))
        assert nested.step_s == pytest.approx(leaders.step_s)


def test_the_inside_of_a_node_is_before_and_behind_every_bucket() -> None:
    """With nothing to overlap it adds, bucket by bucket, a sum in rank order and a broadcast."""
    network = replace(SMALL, layers=SMALL.layers[2:3])  # one bucket, ready when the backward pass is over
    nested = forecast("terngrad", setting(4, 4, network=network), (HIERARCHICAL,))
    leaders = forecast("terngrad", setting(4, network=network), (FLAT,))
    node = Topology(4, 4, ETHERNET, BUS).inside
    inside = sum(collectives.seconds(node, call) for call in collectives.inside_calls(4 * network.numel))
    assert nested.step_s - leaders.step_s == pytest.approx(inside)


def test_a_codec_that_cannot_serve_says_why() -> None:
    many = setting(10_000)
    made = forecast("qsgd:4", many)
    assert "at most" in str(made.refusal)
    row = compare(["qsgd:4"], many)[0]
    assert not row.pays
    assert row.speedup == 0


def test_a_misspelt_codec_is_an_error() -> None:
    with pytest.raises(CodecError, match='no codec "terngard"'):
        forecast("terngard", setting())


def test_what_was_measured_replaces_what_is_derived() -> None:
    slow = setting(link=LinkModel("fast", 0.0, math.inf))
    speeds = slow.speeds.with_measured({"terngrad": CodecSpeed(encode=1e-6)})
    measured = forecast("terngrad", replace(slow, speeds=speeds))
    assert measured.codec_s > 4.0
    assert forecast("terngrad", slow).codec_s < 0.1


def test_speeds_scale_with_the_device() -> None:
    slow, fast = DEVICES["gtx1080"], DEVICES["h100"]
    for codec in (*LINK_COSTS, "gradiveq:8", "powersgd:4", "topk:0.01 >> fp16"):
        assert source_of(codec, slow)
        one, other = codec_speed(codec, slow), codec_speed(codec, fast)
        assert all(getattr(one, name) >= getattr(other, name) for name in vars(one))
    assert (
        codec_speed("gradiveq:4", slow).encode > codec_speed("gradiveq:8", slow).encode
    )  # twice the columns
    assert codec_speed("gradiveq:ratio=8,slice=512", slow).encode > codec_speed("gradiveq:8", slow).encode
    assert codec_speed("topk:0.01", slow, remembers=True).keep > 0
    assert Speeds(slow).of("dense", sharded=True).encode == slow.copy_s


def test_every_codec_has_a_speed() -> None:
    """A new name in the catalog needs a line in speed.py."""
    for name in CATALOG:
        busy = sum(vars(codec_speed(name, DEVICES["v100"])).values())
        assert (busy > 0) == (name != "dense")
        assert source_of(name, DEVICES["v100"])


def test_costs_on_new_gpus_are_those_of_the_page_and_marked_as_computed() -> None:
    """docs/background/gpu.md counts bytes with 4 payloads; the model goes by one."""
    rows = re.findall(r"^\| `(\w+\.\w+)` \| \d+ \| ([\d.]+) \| ([\d.]+) \|", GPU_PAGE.read_text(), re.M)
    moved = {name: float(loaded) + float(stored) for name, loaded, stored in rows}
    families = {"terngrad": "ternary", "qsgd": "qsgd", "sign": "sign", "natural": "natural",
                "rangefloat": "rangefloat", "topk": "topk"}  # fmt: skip
    a100 = DEVICES["a100"]
    for codec, family in families.items():
        own = {
            name.partition(".")[2]: nbytes for name, nbytes in moved.items() if name.startswith(f"{family}.")
        }
        own.pop("decode_own", None)
        per_payload = [own.pop(name) / 4 for name in ("add", "decode") if name in own]
        counted = sum(own.values()) + sum(per_payload)
        if codec == "topk":  # its payloads are a few places, and all that is stored is the mean
            counted = moved["topk.select"] + moved["topk.scatter"] - 0.75 * 0.32
        assert codec_speed(codec, a100).an_element * 8 / a100.copy_s == pytest.approx(counted, rel=0.01)
        assert "computed" in source_of(codec, a100)
    assert "computed" not in source_of("terngrad", DEVICES["v100"])  # below sm_80


def test_gathered_payloads_are_decoded_one_by_one() -> None:
    """The codec's own time grows with the workers where payloads gather, and not where owners merge them."""
    few, many = setting(8), setting(64)
    assert forecast("sign:block=column", many).codec_s > 2 * forecast("sign:block=column", few).codec_s
    assert forecast("terngrad", many).codec_s == pytest.approx(forecast("terngrad", few).codec_s, rel=0.05)


def test_sweeps_have_the_asked_point_among_them() -> None:
    asked = setting(12)
    counts = node_counts(asked, 64)
    assert counts == [1, 2, 4, 8, 12, 16, 32, 64]
    swept = over_nodes(["dense", "terngrad"], asked, counts)
    assert [rows[0].forecast.setting.topology.nodes for rows in swept.values()] == counts
    links = over_links(["dense", "terngrad"], asked, [link_named("10gbit"), ETHERNET])
    assert list(links) == ["1gbit", "10gbit"]


def test_ranges_that_pay() -> None:
    asked = setting(8)
    swept = over_nodes(["dense", "sign:block=column", "terngrad"], asked, [1, 2, 8, 64, 1024])
    assert str(paying_range("terngrad", swept)).startswith("from 2")
    gathered = paying_range("sign:block=column", swept)
    assert gathered.first == 2
    assert not gathered.open_end
    assert str(paying_range("dense", swept)) == "never"


def test_a_run_that_is_broken_is_told_so() -> None:
    rows = over_nodes(["dense", "fp16"], setting(8), [1, 2, 8, 64])
    assert paying_range("fp16", rows) == Range(((2, 64),), open_end=True)
    broken = {**rows, 8: [rows[8][0], replace(rows[8][1], dense=rows[8][1].forecast)]}
    assert str(paying_range("fp16", broken)) == "2, from 64"
