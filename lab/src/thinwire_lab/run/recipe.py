"""A recipe: everything that decides a training run, its codec included; and the lab's own recipes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import thinwire as tw
from thinwire.auto.qualities import DENSE, QUALITIES, candidates
from thinwire.codecs.catalog import AUTO, check_codec_names
from thinwire.errors import LabError
from thinwire.texts import (
    FEEDBACKS,
    ROUTES,
    SCHEDULES,
    check_name,
    first_word,
    read_hierarchy,
    split_options,
)

DDP, DDP_FP16, DDP_POWERSGD = "ddp", "ddp-fp16", "ddp-powersgd"  # PyTorch's own exchange
OPTIMIZERS = ("sgd", "adam", "adamw")
LR_SCHEDULES = ("constant", "cosine")


OUTER = "0.7/0.9"  # DiLoCo's


@dataclass(frozen=True)
class LocalSteps:
    """Steps of a round of local steps, and the outer step at its end."""

    every: int
    outer_lr: float
    outer_momentum: float


@dataclass(frozen=True)
class CodecChoice:
    """A codec text, how else `compress` is called, and the size of DDP's buckets in MB (None: DDP's own)."""

    codec: str
    feedback: str | None = None
    route: str | None = None
    schedule: str | None = None
    bucket: str | None = None
    quality: str | None = None
    hierarchy: str | None = None
    sensitive: str | None = None
    every: str | None = None  # local steps of a round
    outer: str | None = None  # learning rate and momentum of the outer step
    weights: str | None = None  # FSDP2: what all-gathers send, "raw" for weights as they are

    def __post_init__(self) -> None:
        if self.outer is not None and self.every is None:
            raise LabError(f"outer={self.outer} is of local steps: give every= too, as in every=30")
        if self.local is not None and (self.is_pytorch or self.is_auto or self.bucket or self.hierarchy):
            raise LabError("every= makes local steps, and these take no bucket=, hierarchy=, ddp or auto")
        if self.bucket is not None and not self.bucket.replace(".", "", 1).isdigit():
            raise LabError(f"bucket={self.bucket} must be a size in MB, as in bucket=5")
        if not (self.hierarchy in (None, "auto", "off") or str(self.hierarchy).isdigit()):
            raise LabError(f"hierarchy={self.hierarchy} must be auto, off, or how many workers a node has")
        if self.is_auto and (self.feedback or self.route or self.schedule or self.sensitive):
            raise LabError(
                "auto chooses feedback, route and schedule with the codec: quality= and hierarchy= fit"
            )
        if self.quality is not None and not self.is_auto:
            raise LabError(f"quality={self.quality} says what auto may take, and {self.codec} is no auto")

    @property
    def local(self) -> LocalSteps | None:
        """The local steps that are asked for."""
        if self.every is None:
            return None
        try:
            lr, momentum = (float(number) for number in (self.outer or OUTER).split("/"))
            return LocalSteps(int(self.every), lr, momentum)
        except ValueError as error:
            raise LabError(
                f"every={self.every} outer={self.outer} must be a number of steps, and a learning rate "
                f"with a momentum as in outer={OUTER}"
            ) from error

    @property
    def is_pytorch(self) -> bool:
        """Whether PyTorch's own exchange is meant and not a thinwire codec."""
        return first_word(self.codec) in (DDP, DDP_FP16, DDP_POWERSGD)

    @property
    def is_auto(self) -> bool:
        """Whether what is quickest is meant."""
        return self.codec == AUTO

    def check_names(self) -> None:
        """Refuses a misspelt name without waiting for torch; options are checked where the codec is made."""
        if not self.is_pytorch and not self.is_auto:
            check_codec_names(self.codec)
        if self.sensitive is not None:
            check_codec_names(self.sensitive)
        for what, known in (("feedback", FEEDBACKS), ("route", ROUTES), ("schedule", SCHEDULES)):
            text = getattr(self, what)
            if text is not None:
                check_name(what, text, known)

    @property
    def bucket_mb(self) -> float | None:
        return None if self.bucket is None else float(self.bucket)

    def options(self) -> dict[str, Any]:
        """The options as `compress` takes them."""
        options: dict[str, Any] = {"feedback": self.feedback, "route": self.route, "schedule": self.schedule}
        if self.quality is not None:
            options["quality"] = self.quality
        if self.hierarchy is not None:
            options["hierarchy"] = read_hierarchy(self.hierarchy)
        return options

    def policy(self, total_steps: int | None = None) -> tw.Policy:
        """Which tensor gets what, in a run of so many steps."""
        return tw.Policy.of(self.codec, total_steps=total_steps, sensitive=self.sensitive)

    def plan(self, model: tw.Model, workers: int, total_steps: int | None = None) -> tw.Plan:
        """What would travel for a model in a run of so many steps; under auto, in the first ones."""
        if self.is_auto:
            candidates(self.quality or QUALITIES[0])
            return tw.Plan.of(tw.Policy.of(DENSE), model, workers)
        return tw.Plan.of(self.policy(total_steps), model, workers, self.feedback, self.route, self.schedule)


def read_codec_choice(text: str) -> CodecChoice:
    """Reads a codec text with options behind "@", in words of the form option=value.

    >>> read_codec_choice("topk:0.01 @ schedule=guard:patience=2 feedback=none").options()
    {'feedback': 'none', 'route': None, 'schedule': 'guard:patience=2'}
    """
    codec, given = split_options(text)
    return CodecChoice(codec, **given)


@dataclass(frozen=True)
class Recipe:
    """One training run; the same recipe gives the same parameters, bit for bit, on the same machine."""

    task: str
    model: str
    epochs: float
    batch: int  # examples per worker and step
    lr: float
    codec: str = "terngrad"
    workers: int = 4
    steps: int | None = None  # instead of epochs
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    warmup: float = 0.05  # share of the steps in which the learning rate rises from zero
    augment: bool = False
    seed: int = 0
    rate: str | None = None  # of every worker's link; None: as fast as this machine is
    evaluations: int = 10

    def __post_init__(self) -> None:
        _require(
            self.optimizer in OPTIMIZERS,
            f"optimizer {self.optimizer!r} must be one of {', '.join(OPTIMIZERS)}",
        )
        _require(
            self.schedule in LR_SCHEDULES,
            f"schedule {self.schedule!r} must be one of {', '.join(LR_SCHEDULES)}",
        )
        _require(self.workers >= 1, f"workers must be at least 1, not {self.workers}")
        _require(self.batch >= 1, f"batch must be at least 1, not {self.batch}")
        _require(self.steps is None or self.steps >= 1, f"steps must be at least 1, not {self.steps}")
        _require(self.epochs > 0, f"epochs must be above 0, not {self.epochs}")
        _require(self.evaluations >= 1, f"evaluations must be at least 1, not {self.evaluations}")
        _require(self.lr > 0, f"lr must be above 0, not {self.lr}")
        _require(0 <= self.seed < 2**31, f"seed must be from 0 to 2147483647, not {self.seed}")

    def num_steps(self, num_examples: int) -> int:
        """Steps of the whole run over a training set of this size."""
        if self.steps is not None:
            return self.steps
        return max(1, round(self.epochs * self.steps_per_epoch(num_examples)))

    def steps_per_epoch(self, num_examples: int) -> int:
        """Full batches of all workers in one pass over the training set."""
        steps = num_examples // (self.batch * self.workers)
        _require(
            steps >= 1,
            f"{self.workers} workers with batches of {self.batch} need more than the {num_examples} examples "
            f"of {self.task}: take fewer workers or a smaller batch",
        )
        return steps

    def lr_at(self, step: int, num_steps: int) -> float:
        """Learning rate of a step: a linear warm-up, then constant or half a cosine down to zero."""
        rising = math.ceil(self.warmup * num_steps)
        if step < rising:
            return self.lr * (step + 1) / (rising + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, num_steps - rising)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe that `to_dict` wrote."""
    known = {field.name for field in fields(Recipe)}
    _require(
        set(values) <= known,
        f"recipe has unknown entries {sorted(set(values) - known)}: another version wrote it",
    )
    return Recipe(**values)


def _require(rule: bool, sentence: str) -> None:
    if not rule:
        raise LabError(sentence)


def digits() -> Recipe:
    """A small CNN on scikit-learn's digits: above 97 % in seconds."""
    return Recipe("digits", "digits-cnn", epochs=10, batch=16, lr=0.05)


def demo() -> Recipe:
    """The demo: digits over links so slow that sending the gradients takes longer than computing them."""
    return replace(digits(), epochs=8, rate="50mbit", evaluations=8)


def mnist() -> Recipe:
    """LeNet on MNIST, TernGrad's first experiment (total batch 64, momentum)."""
    return Recipe("mnist", "lenet", epochs=2, batch=16, lr=0.02, weight_decay=5e-4)


def fashion_mnist() -> Recipe:
    """LeNet on Fashion-MNIST: the same size as MNIST, but not as easy."""
    return replace(mnist(), task="fashion-mnist", epochs=4)


def cifar10() -> Recipe:
    """ResNet-20 on CIFAR-10 with shifts and flips."""
    return Recipe("cifar10", "resnet20", epochs=10, batch=32, lr=0.1, weight_decay=1e-4, augment=True)


def cifar10_study() -> Recipe:
    """A net of half a million parameters on CIFAR-10, in minutes of two cores: for comparing codecs."""
    return replace(cifar10(), model="resnet8-wide", epochs=7, weight_decay=5e-4, warmup=0.15, evaluations=7)


def cifar10_adamw() -> Recipe:
    """The same with AdamW."""
    return replace(cifar10_study(), lr=2e-3, optimizer="adamw", weight_decay=0.05, epochs=5, evaluations=5)


def shakespeare() -> Recipe:
    """A small character transformer on tiny Shakespeare, with Adam."""
    return Recipe(
        "shakespeare", "char-transformer", epochs=3, batch=16, lr=1e-3, optimizer="adam", warmup=0.1
    )


def shakespeare_study() -> Recipe:
    """The same transformer with AdamW, for comparing codecs."""
    return replace(shakespeare(), epochs=2, lr=4e-3, optimizer="adamw", weight_decay=0.1, evaluations=2)


def shakespeare_long() -> Recipe:
    """The study's transformer trained four times as long: what a short run hides shows here."""
    return replace(shakespeare_study(), batch=8, steps=2000, evaluations=4)


RECIPES: Mapping[str, Callable[[], Recipe]] = MappingProxyType(
    {
        "digits": digits,
        "mnist": mnist,
        "fashion-mnist": fashion_mnist,
        "cifar10": cifar10,
        "cifar10-study": cifar10_study,
        "cifar10-adamw": cifar10_adamw,
        "shakespeare": shakespeare,
        "shakespeare-study": shakespeare_study,
        "shakespeare-long": shakespeare_long,
    }
)


def recipe_for(task: str) -> Recipe:
    """The good recipe for a task."""
    if task not in RECIPES:
        raise LabError(f"unknown task {task!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[task]()
