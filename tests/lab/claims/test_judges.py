"""Judges decide by the records alone: made ones, for either side of their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from thinwire_lab.claims.claim import Evidence, Judge, Measured
from thinwire_lab.claims.gradient_studies import SHARES
from thinwire_lab.claims.papers import fft, gradiveq, local, speed, terngrad_gradients, terngrad_training
from thinwire_lab.claims.papers.accuracy import DGC, NO_FEEDBACK
from thinwire_lab.claims.registry import find_claim
from thinwire_lab.claims.training_studies import Trainings


def trained(id: str, accuracy: dict[str, float], fewer: float = 10.0) -> Evidence:
    """All trainings of a claim, two seeds: their accuracy by codec, else 0.9."""
    study = find_claim(id).study
    assert isinstance(study, Trainings)
    runs = [run for seed in (0, 1) for run in study.runs(seed)]
    return Evidence(
        [
            Measured(
                run.settings,
                run.seed,
                {
                    "accuracy": accuracy.get(run.settings["codec"], 0.9),
                    "bytes_per_step": 100.0 / (fewer if ">>" in run.settings["codec"] else 2.0),
                    "dense_bytes_per_step": 100.0,
                    "test_loss": 1.5,
                    "losses": [[1, 2.0], [2, 1.0]],
                },
            )
            for run in runs
        ]
    )


TRAININGS: Sequence[tuple[str, dict[str, float], str]] = [
    ("terngrad-workers", {"terngrad": 0.898}, "reproduced"),
    ("terngrad-workers", {"terngrad": 0.89}, "refuted"),
    ("terngrad-adam-small-batch", {"terngrad": 0.895}, "reproduced"),
    ("terngrad-adam-small-batch", {"terngrad": 0.885}, "partly"),
    ("terngrad-adam-small-batch", {"terngrad": 0.8}, "refuted"),
    ("terngrad-adam-large-batch", {"dense": 0.15, "terngrad": 0.15}, "open: float itself has not learnt"),
    ("terngrad-clipping", {"dense": 0.15}, "open: float itself has not learnt"),
    ("terngrad-dropout", {"dense": 0.15}, "open: float itself has not learnt"),
    ("terngrad-clipping", {terngrad_training.UNCLIPPED: 0.85}, "reproduced"),
    ("terngrad-clipping", {terngrad_training.UNCLIPPED: 0.95}, "partly: clipping did not help"),
    ("terngrad-dropout", {}, "refuted"),
    ("fft-diminishing-theta", {fft.CONSTANT: 0.8}, "reproduced"),
    ("fft-diminishing-theta", {fft.CONSTANT: 0.7, fft.DIMINISHING: 0.8}, "partly"),
    ("fft-recovery", {fft.RUINED: 0.5, fft.LOWERED: 0.89}, "reproduced: 98%"),
    ("fft-recovery", {fft.RUINED: 0.5, fft.LOWERED: 0.6}, "refuted"),
    ("gradiveq-qsgd", {}, "reproduced"),
    ("gradiveq-qsgd", {gradiveq.CHAINED: 0.5}, "partly"),
    ("qsgd-accuracy", {}, "reproduced"),
    ("dgc-accuracy", {DGC: 0.892}, "partly"),
    ("dgc-accuracy", {DGC: 0.8}, "refuted: for a run of 300 steps"),
    ("powersgd-rank", {"powersgd:1": 0.8}, "reproduced"),
    ("powersgd-rank", {"powersgd:1": 0.95}, "partly"),
    ("onebit-feedback", {NO_FEEDBACK: 0.5}, "reproduced"),
    ("onebit-feedback", {}, "refuted"),
]


@pytest.mark.parametrize(("id", "accuracy", "verdict"), TRAININGS)
def test_trainings(id: str, accuracy: dict[str, float], verdict: str) -> None:
    assert find_claim(id).judge(trained(id, accuracy)).verdict.startswith(verdict)


def test_workers_are_told_apart() -> None:
    evidence = trained("terngrad-workers", {})
    worse = [
        replace(one, result={**one.result, "accuracy": 0.89})
        if (one.settings["workers"], one.settings["momentum"]) == (16, 0.9)
        else one
        for one in evidence.measured
    ]
    judged = terngrad_training.judge(Evidence(worse))
    assert judged.verdict == "partly: after 300 steps within the paper's -0.22 in 5 of 6 cases"
    assert "-1.00 (momentum, 16 workers)" in judged.measured


def test_a_loss_within_its_spread_refutes_nothing() -> None:
    judged = find_claim("terngrad-adam-large-batch")
    accuracies = {("dense", 0): 0.4, ("dense", 1): 0.4, ("terngrad", 0): 0.4, ("terngrad", 1): 0.378}
    evidence = Evidence(
        [
            replace(one, result={**one.result, "accuracy": accuracies[one.settings["codec"], one.seed]})
            for one in trained(judged.id, {}).measured
        ]
    )
    assert judged.judge(evidence).verdict == "partly: the paper's figure lies within the spread"


def dropped_out(test_loss: float, gain_of_float: float) -> Evidence:
    """Less dropout gives TernGrad 0.02; the last training loss is 1."""
    gains = {"terngrad": 0.02, "dense": gain_of_float}
    return Evidence(
        [
            replace(one, result={**one.result, "accuracy": accuracy, "test_loss": test_loss})
            for one in trained("terngrad-dropout", {}).measured
            for gain in [gains[one.settings["codec"]]]
            for accuracy in [0.5 + gain * (one.settings["model"] == terngrad_training.LITTLE_DROPOUT)]
        ]
    )


def test_dropout_needs_something_to_regularise() -> None:
    judge = terngrad_training.judge_dropout
    assert judge(dropped_out(1.5, gain_of_float=0.0)).verdict == "reproduced"
    assert judge(dropped_out(1.5, gain_of_float=0.03)).verdict == "partly: it helps float as much"
    assert judge(dropped_out(0.9, gain_of_float=0.0)).verdict.startswith("partly: float was not overfitted")


def ternary(zeros: float, clipped: float, one_scale: float) -> Evidence:
    layer = {"zeros": zeros, "clipped": clipped, "levels": {"ternary": 3, "averaged": 5}}
    layer |= {"shortened": clipped, "turned_degrees": 100 * clipped}
    layers = {terngrad_gradients.CONVOLUTION: layer, terngrad_gradients.FIRST_FULL: layer}
    moments = [{"layers": layers, "errors": {"own scales": 1.0, "one scale": one_scale}}]
    return Evidence([Measured({}, seed, {"moments": moments}) for seed in (0, 1)])


@pytest.mark.parametrize(
    ("judge", "good", "bad"),
    [
        (terngrad_gradients.judge_scales, ternary(0.7, 0.01, 1.5), ternary(0.7, 0.01, 0.9)),
        (terngrad_gradients.judge_zeros, ternary(0.7, 0.01, 1.5), ternary(0.4, 0.01, 1.5)),
        (terngrad_gradients.judge_clipping_cost, ternary(0.7, 0.01, 1.5), ternary(0.7, 0.2, 1.5)),
    ],
)
def test_ternary_gradients(judge: Judge, good: Evidence, bad: Evidence) -> None:
    assert judge(good).word == "reproduced"
    assert judge(bad).word == "refuted"


def test_histograms() -> None:
    judge = terngrad_gradients.judge_histograms
    assert judge(ternary(0.7, 0.01, 1.5)).word == "reproduced"
    assert judge(ternary(0.7, 0.3, 1.5)).word == "partly"


def correlated(fresh: float, old: float, others: float, shuffled: float) -> Evidence:
    def energies(share: float) -> dict[str, float]:
        return {f"{s:g}": share for s in SHARES}

    ages = {str(age): energies(fresh if age == 1 else old) for age in gradiveq.AGES}
    layer = {"by_age": ages, "other_slices": energies(others), "shuffled": energies(shuffled)}
    layer |= {"fresh_by_age": {age: energies(fresh) for age in ages}, "same_slices": energies(fresh)}
    return Evidence([Measured({}, seed, {"layers": {"conv": layer}}) for seed in (0, 1)])


def test_correlation() -> None:
    good, bad = correlated(0.95, 0.94, 0.94, 0.13), correlated(0.2, 0.05, 0.05, 0.13)
    middle = correlated(0.6, 0.2, 0.5, 0.13)
    judges = (
        gradiveq.judge_correlation,
        gradiveq.judge_time,
        gradiveq.judge_space,
    )
    assert [judge(good).word for judge in judges] == ["reproduced"] * 3
    assert [judge(bad).word for judge in judges] == ["refuted"] * 3
    assert gradiveq.judge_correlation(middle).verdict.startswith("partly: correlated, but")


def compressed(fft: float, rangefloat: float) -> Evidence:
    errors = [
        {"method": method, "target": 2.0, "meets": True, "error": error}
        for method, error in (("fft", fft), ("fft whole", 2.0), ("topk", 0.5), ("qsgd", 1.0))
    ]
    formats = [
        {"format": "rangefloat", "bits": 8, "error": rangefloat},
        {"format": "e4m3 scaled", "bits": 8, "error": 0.02},
    ]
    moments = [{"errors": errors, "formats": formats}]
    return Evidence([Measured({"task": "mnist"}, seed, {"moments": moments}) for seed in (0, 1)])


@pytest.mark.parametrize(
    ("fft_error", "rangefloat", "words"),
    [(0.4, 0.01, "reproduced reproduced"), (0.7, 0.03, "partly refuted"), (1.5, 0.03, "refuted refuted")],
)
def test_errors_and_formats(fft_error: float, rangefloat: float, words: str) -> None:
    evidence = compressed(fft_error, rangefloat)
    judges = (fft.judge_errors, fft.judge_formats)
    assert " ".join(judge(evidence).word for judge in judges) == words


def step_times(**times: float) -> Evidence:
    step_ms: dict[str, Any] = {"none": 50.0, "ddp": 400.0, "qsgd:4": 200.0, speed.TOPK: 250.0, **times}
    speedup = {name: 400.0 / own for name, own in step_ms.items()}
    result = {"step_ms": step_ms, "speedup": speedup}
    return Evidence([Measured({"rate": "1gbit"}, seed, result) for seed in (0, 1)])


def test_step_times() -> None:
    fast = step_times(**{speed.FFT: 100.0, "terngrad": 125.0})
    slow = step_times(**{speed.FFT: 300.0, "terngrad": 200.0})
    assert [speed.judge_fft(own).word for own in (fast, slow)] == ["reproduced", "partly"]
    assert [speed.judge_terngrad(own).word for own in (fast, slow)] == ["reproduced", "partly"]
    assert "slower than qsgd:4, terngrad, topk:0.048" in speed.judge_fft(slow).verdict


def test_exchange_times() -> None:
    def evidence(slow: float, fast: float) -> Evidence:
        return Evidence(
            [
                Measured(
                    {"rate": rate},
                    seed,
                    {
                        "speedup": {speed.AGGREGATION: factor},
                        "time_ms": {speed.AGGREGATION: 1 / factor, speed.SAME_RATIO: 1 / 5},
                    },
                )
                for rate, factor in ((speed.SLOW, slow), (speed.FAST, fast))
                for seed in (0, 1)
            ]
        )

    judges = (speed.judge_aggregation, speed.judge_same_ratio)
    assert [judge(evidence(7, 6.5)).word for judge in judges] == ["reproduced", "reproduced"]
    assert [judge(evidence(7, 4)).word for judge in judges] == ["partly", "partly"]
    assert [judge(evidence(4, 4)).word for judge in judges] == ["refuted", "refuted"]


def test_end_to_end_time() -> None:
    def evidence(seconds: float) -> Evidence:
        times = {"ddp": 100.0, speed.CYCLE: seconds}
        return Evidence(
            [Measured({"codec": c}, seed, {"seconds": s}) for c, s in times.items() for seed in (0, 1)]
        )

    words = [speed.judge_end_to_end(evidence(seconds)).word for seconds in (50.0, 70.0, 90.0)]
    assert words == ["reproduced", "partly", "refuted"]


def planned(id: str, payload: int) -> Evidence:
    """What the plan says of a claim about bytes, with a payload of so many bytes."""
    runs = find_claim(id).study.runs(0)
    results = [{"bytes": payload * (run.settings["workers"] - 1), "elements": 1 << 22} for run in runs]
    return Evidence(
        [
            Measured(run.settings, 0, {**result, "dense_bytes": 1 << 24})
            for run, result in zip(runs, results, strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("id", "payload", "verdict"),
    [
        ("sparseloco-bytes", 82_000, "reproduced"),
        ("sparseloco-bytes", 150_000, "partly"),
        ("sparseloco-bytes", 300_000, "refuted"),
        ("demo-bytes", 82_000, "untestable"),
    ],
)
def test_bytes_of_the_plan_are_judged(id: str, payload: int, verdict: str) -> None:
    assert find_claim(id).judge(planned(id, payload)).word == verdict


@pytest.mark.parametrize(("gap", "verdict"), [(-0.01, "reproduced"), (0.03, "partly"), (0.2, "refuted")])
def test_sparse_local_steps_are_set_against_dense_ones_seed_by_seed(gap: float, verdict: str) -> None:
    measured = [
        Measured({"codec": codec}, seed, {"loss": 1.6 + 0.1 * seed + own})
        for seed in (0, 1)
        for codec, own in ((local.SPARSE_RUN, gap), (local.DENSE_RUN, 0.0))
    ]
    assert find_claim("sparseloco-accuracy").judge(Evidence(measured)).word == verdict
