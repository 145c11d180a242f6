"""Claims about few bits under Adam: 1-bit Adam and 0/1 Adam, beside AdamW with and without `rotated`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch import nn

from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.optim import OneBitAdam, ZeroOneAdam
from thinwire.optim.exchanging import ExchangingAdam
from thinwire_lab.claims.claim import (
    Claim,
    ClaimRun,
    ClaimStudy,
    Evidence,
    Judge,
    Judgement,
    Result,
    Tell,
    graded,
    points_spread,
    rounded,
)
from thinwire_lab.claims.training_studies import (
    STEPS,
    Trainings,
    fewer_bytes,
    mnist_recipe,
    settings_of,
    thinned,
)
from thinwire_lab.data import load_task
from thinwire_lab.data.task import ExampleOrder
from thinwire_lab.models import model_card
from thinwire_lab.run.observers import Nobody, evaluate
from thinwire_lab.run.recipe import Recipe, recipe_from_dict

LEVEL, NEAR = -0.005, -0.01
ONE_BIT, ZERO_ONE = "1-bit adam", "0/1 adam"
OPTIMIZER = "exchanging optimizer"
FREEZE = round(0.15 * STEPS)
SCALED_DOWN = (
    f"LeNet on MNIST, 4 virtual workers with 16 examples each, {STEPS} steps of AdamW (lr 0.001, decay "
    "0.01); 15 % of the steps are exact for 1-bit Adam, 0/1 Adam freezes its variance after half of them"
)
MAKERS: Mapping[str, Callable[[nn.Module, Recipe, ThreadGroup], ExchangingAdam]] = MappingProxyType(
    {
        ONE_BIT: lambda net, recipe, group: OneBitAdam(
            net, recipe.lr, FREEZE, weight_decay=recipe.weight_decay, group=group
        ),
        ZERO_ONE: lambda net, recipe, group: ZeroOneAdam(
            net,
            recipe.lr,
            STEPS // 2,
            weight_decay=recipe.weight_decay,
            local_step_scaler=STEPS // 6,
            local_step_clipper=4,
            group=group,
        ),
    }
)


def adamw_recipe(codec: str) -> Recipe:
    return replace(mnist_recipe(codec, lr=1e-3), optimizer="adamw", weight_decay=0.01)


class AdamTrainings(ClaimStudy):
    """AdamW with codecs, by virtual workers; and optimizers that exchange by themselves, a thread a rank."""

    needs_data = True

    def __init__(self, codecs: Sequence[str], optimizers: Sequence[str]) -> None:
        self.codecs, self.optimizers = codecs, optimizers
        self.plain = Trainings([adamw_recipe(codec) for codec in codecs])

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        base = settings_of(adamw_recipe("dense"))
        own = [ClaimRun("training", {**base, "codec": "", OPTIMIZER: name}, seed) for name in self.optimizers]
        return [*self.plain.runs(seed), *own]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        if OPTIMIZER not in run.settings:
            return self.plain.perform(run, data, tell)
        torch.set_num_threads(1)
        settings = {**run.settings, "seed": run.seed}
        make = MAKERS[settings.pop(OPTIMIZER)]
        recipe = recipe_from_dict({**settings, "codec": "dense"})
        task = load_task(recipe.task, data)
        order = ExampleOrder(len(task.train), recipe.batch, recipe.workers, recipe.seed)
        nets = [model_card(recipe.model).build(recipe.seed, task.classes) for _ in range(recipe.workers)]

        def work(group: ThreadGroup) -> tuple[list[float], ExchangingAdam]:
            net, losses = nets[group.rank], []
            optimizer = make(net, recipe, group)
            for step, indices in enumerate(order.batches(group.rank, 0, STEPS)):
                for options in optimizer.param_groups:
                    options["lr"] = recipe.lr_at(step, STEPS)
                x, y = task.batch(task.train, indices)
                optimizer.zero_grad()
                loss = task.loss(net(x), y)
                torch.autograd.backward(loss)
                optimizer.step()
                losses.append(loss.item())
                if group.rank == 0:
                    tell("", step + 1, STEPS)
            return losses, optimizer

        ranks = run_ranks(recipe.workers, work, timeout_s=600)
        losses = [sum(column) / len(column) for column in zip(*(own for own, _ in ranks), strict=True)]
        scores, optimizer = evaluate(nets[0], task, Nobody(), losses), ranks[0][1]
        return {
            "accuracy": scores.accuracy,
            "test_loss": rounded(scores.test_loss),
            "steps": STEPS,
            "bytes_per_step": optimizer.sent_bytes / STEPS,
            "dense_bytes_per_step": optimizer.dense_bytes / STEPS,
            "losses": thinned(losses),
        }


def judge_same(name: str, fewest: float) -> Judge:
    """Reproduced if the mean loss is at most half a point at `fewest` times fewer bytes; partly: a point."""

    def judge(evidence: Evidence) -> Judgement:
        own = evidence.where(**{OPTIMIZER: name})
        difference = own.minus(evidence.where(codec="dense"), "accuracy")
        rotated = evidence.where(codec="rotated")
        beside = rotated.minus(evidence.where(codec="dense"), "accuracy")
        fewer = own.values(fewer_bytes).mean
        measured = (
            f"{points_spread(difference)} points against AdamW at {fewer:.1f} times fewer bytes; AdamW with "
            f"`rotated` {points_spread(beside)} at {rotated.values(fewer_bytes).mean:.1f}"
        )
        holds = difference.mean >= LEVEL and fewer >= fewest
        why = "" if fewer >= fewest else f"{fewer:.1f} times fewer bytes in so short a run, not {fewest:.1f}"
        return Judgement(measured, graded(holds, difference.mean >= NEAR), why)

    return judge


CLAIMS = (
    Claim(
        "one-bit-adam-convergence",
        "1-bit Adam",
        "abstract",
        "1-bit Adam reduces the communication volume by up to 5 times and has the same convergence speed as "
        "uncompressed Adam.",
        SCALED_DOWN,
        AdamTrainings(("dense", "rotated"), (ONE_BIT,)),
        judge_same(ONE_BIT, 5.0),
    ),
    Claim(
        "zero-one-adam-convergence",
        "0/1 Adam",
        "abstract",
        "0/1 Adam reduces the data volume by up to 87 % without losing convergence speed or accuracy.",
        SCALED_DOWN,
        AdamTrainings(("dense", "rotated"), (ZERO_ONE,)),
        judge_same(ZERO_ONE, 1 / (1 - 0.87)),
    ),
)
