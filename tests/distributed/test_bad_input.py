"""Bad input gets one clear sentence, on every rank, and never a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from failing import failure_of
from launch import NewTeam, Teams
from rank import Failure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training import fit, mlp, wrap

import thinwire as tw


def check(failures: list[Failure], kind: str, *words: str) -> None:
    """The same kind of error with all the words, on every rank, in one paragraph."""
    for failure in failures:
        assert failure.kinds[0] == kind, failure.trace
        assert "\n" not in failure.text
        for word in words:
            assert word in failure.text


def different_codecs() -> Failure:
    codec = "terngrad" if dist.get_rank() == 1 else "terngrad:clip=3"
    return failure_of(lambda: wrap(mlp(), codec))


def different_names() -> Failure:
    net = mlp() if dist.get_rank() == 1 else nn.Sequential(mlp())
    return failure_of(lambda: wrap(net, "terngrad"))


def different_memories() -> Failure:
    feedback = "none" if dist.get_rank() == 1 else "residual"
    return failure_of(lambda: wrap(mlp(), "terngrad", feedback=feedback))


@pytest.mark.parametrize("work", [different_codecs, different_names, different_memories])
def test_ranks_with_different_plans(teams: Teams, work: Callable[[], Failure]) -> None:
    """Rank 1 is the odd one out; the team goes on to be used by other tests."""
    check(teams(3).run(work), "PlanError", "ranks disagree on their plans", "rank 0 and rank 1 differ")


def nameless_different_codecs() -> list[Failure]:
    """Without a model the plans grow with the buckets: the difference shows in the first backward pass."""
    model = DistributedDataParallel(mlp())
    state, hook = tw.ddp_hook("fp16" if dist.get_rank() == 1 else "bf16")
    model.register_comm_hook(state, hook)
    return [failure_of(lambda: fit(model, 1)) for _ in range(2)]


def different_buckets() -> list[Failure]:
    cap = 25 if dist.get_rank() == 1 else 0.01
    it = wrap(mlp(), "terngrad", {"bucket_cap_mb": cap, "find_unused_parameters": True})
    return [failure_of(lambda: fit(it.model, 1)) for _ in range(2)]


def test_ranks_with_different_codecs_and_no_names(new_team: NewTeam) -> None:
    for first, second in new_team(3).run(nameless_different_codecs):
        check([first, second], "PlanError", "buckets or codecs", "rank 0 and rank 1 differ")


def test_ranks_with_different_buckets(new_team: NewTeam) -> None:
    for first, second in new_team(3).run(different_buckets):
        check([first], "PlanError", "buckets or codecs", "rank 0 and rank 1 differ")
        assert "RuntimeError" in second.kinds or "PlanError" in second.kinds


def refusals() -> dict[str, Failure]:
    """What a rank can get wrong all by itself; nothing of it reaches the network."""
    ddp = DistributedDataParallel(mlp())
    sparse = nn.Sequential(nn.Embedding(50, 30, sparse=True), nn.Linear(30, 5))
    acts: dict[str, Callable[[], Any]] = {
        "codec": lambda: tw.compress(ddp, "terngard"),
        "option": lambda: tw.compress(ddp, "terngrad:clop=2"),
        "route": lambda: tw.compress(ddp, "terngrad", route="allreduce"),
        "unknown route": lambda: tw.compress(ddp, "terngrad", route="carrier pigeon"),
        "feedback": lambda: tw.compress(ddp, "terngrad", feedback="elephant"),
        "keep_dense": lambda: tw.compress(ddp, "terngrad", keep_dense=("first",)),
        "no ddp": lambda: tw.compress(mlp(), "terngrad"),  # type: ignore[arg-type]
        "wrapped twice": lambda: tw.compress(DistributedDataParallel(ddp), "terngrad"),
        "sparse": lambda: tw.ddp_hook("terngrad", model=sparse),
        "complex": lambda: tw.ddp_hook("terngrad", model=nn.Linear(40, 40, dtype=torch.complex64)),
        "empty": lambda: tw.ddp_hook("terngrad", model=nn.ReLU()),
        "frozen": lambda: tw.ddp_hook("terngrad", model=mlp().requires_grad_(False)),
    }
    return {name: failure_of(act) for name, act in acts.items()}


REFUSALS: dict[str, tuple[str, list[str]]] = {
    "codec": ("CodecError", ['"terngard"', 'did you mean "terngrad"?']),
    "option": ("CodecError", ["clop", "clip"]),
    "route": ("PlanError", ['"allreduce"', 'use route "sharded"']),
    "unknown route": ("PlanError", ['"carrier pigeon"', "allreduce, allgather, sharded"]),
    "feedback": ("PlanError", ['"elephant"', "none, residual"]),
    "keep_dense": ("PlanError", ['"first"', "vector, small, embedding, last"]),
    "no ddp": ("PlanError", ["Sequential", "DistributedDataParallel(net)"]),
    "wrapped twice": ("PlanError", ["wrapped twice", "plain net"]),
    "sparse": ("PlanError", ["0 has sparse gradients", "sparse=False"]),
    "complex": ("PlanError", ["weight is torch.complex64", "requires_grad_(False)"]),
    "empty": ("PlanError", ["no trainable parameters"]),
    "frozen": ("PlanError", ["no trainable parameters"]),
}


def test_every_mistake_gets_a_clear_sentence(teams: Teams) -> None:
    answers = teams(2).run(refusals)
    assert answers[0].keys() == REFUSALS.keys()
    for name, (kind, words) in REFUSALS.items():
        check([answer[name] for answer in answers], kind, *words)


def sparse_without_names() -> Failure:
    net = nn.Sequential(nn.Embedding(50, 30, sparse=True), nn.Linear(30, 5))
    model = DistributedDataParallel(net)
    model.register_comm_hook(*tw.ddp_hook("bf16"))
    return failure_of(lambda: model(torch.arange(4)).sum().backward())


def complex_without_names() -> Failure:
    class Phase(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.Parameter(torch.ones(40, 40, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.turn).abs()

    model = DistributedDataParallel(Phase(), init_sync=False)  # older gloo cannot broadcast complex numbers
    model.register_comm_hook(*tw.ddp_hook("bf16"))
    return failure_of(lambda: model(torch.ones(40)).sum().backward())


def test_strange_gradients_without_names(new_team: NewTeam) -> None:
    team = new_team(2)
    check(team.run(sparse_without_names), "PlanError", "sparse gradients", "sparse=False")
    check(team.run(complex_without_names), "PlanError", "complex64")


def uneven_division() -> Failure:
    it = wrap(mlp(), "terngrad")

    def train() -> None:
        with it.model.join(divide_by_initial_world_size=False):
            fit(it.model, 2 + dist.get_rank())

    return failure_of(train)


def test_join_that_divides_by_the_ranks_left_is_refused(new_team: NewTeam) -> None:
    check(new_team(2).run(uneven_division), "PlanError", "divide_by_initial_world_size=False", "leave it out")


def closed() -> tuple[Failure, Failure]:
    with wrap(mlp(), "terngrad") as it:
        fit(it.model, 1)
    return failure_of(lambda: fit(it.model, 1)), failure_of(lambda: fit(it.model, 1))


def test_a_closed_compressor_does_not_train_silently_on_local_gradients(teams: Teams) -> None:
    for pair in teams(2).run(closed):
        check(list(pair), "PlanError", "was closed", "new DistributedDataParallel")


def compressed_twice() -> Failure:
    with wrap(mlp(), "terngrad") as it:
        failure = failure_of(lambda: tw.compress(it.model, "terngrad"))
        fit(it.model, 1)  # the first compressor is as well as before
        return failure


def test_a_model_is_compressed_only_once(teams: Teams) -> None:
    check(teams(2).run(compressed_twice), "PlanError", "hook already", "new DistributedDataParallel")


def test_without_a_process_group() -> None:
    assert not dist.is_initialized()
    with pytest.raises(tw.ThinwireError, match="init_process_group first"):
        tw.ddp_hook("terngrad", model=mlp())
