"""The options of a training run, which `train` and `compare` share, and what follows from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from thinwire.texts.rate import rate_or_none
from thinwire_lab.cli.options import Data, Json, NetworkName, Out, Picture, Seed
from thinwire_lab.net.network import AUTO
from thinwire_lab.run.codec_choice import read_codec_choice
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.run.recipes import recipe_for

if TYPE_CHECKING:
    from thinwire_lab.run.checkpoint_options import CheckpointOptions

IN_RECIPE = ("workers", "model", "epochs", "steps", "batch", "lr", "evaluations", "seed")


@dataclass(frozen=True)
class RunOptions:
    """What the user asks for beside task and codec; None: as the task's recipe has it."""

    workers: Annotated[int, typer.Option(help="Worker processes.")] = 4
    rate: Annotated[
        str | None,
        typer.Option(help="Rate of every worker's link, e.g. 100mbit; default, or none: no limit."),
    ] = None
    model: Annotated[str | None, typer.Option(help="Model; default: the one of the task's recipe.")] = None
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the data; default: the task's recipe.")
    ] = None
    steps: Annotated[int | None, typer.Option(help="Steps, instead of epochs.")] = None
    batch: Annotated[int | None, typer.Option(help="Examples per worker and step.")] = None
    lr: Annotated[float | None, typer.Option("--lr", help="Learning rate at its highest.")] = None
    evaluations: Annotated[int | None, typer.Option(help="How often the model is scored; default: 10.")] = (
        None
    )
    seed: Seed = 0
    data: Data = None
    out: Out = Path("runs")
    network: NetworkName = AUTO
    json: Json = False
    png: Picture = False
    tensorboard: Annotated[
        Path | None, typer.Option(help="Also write curves for TensorBoard, a folder a run, into this folder.")
    ] = None

    def recipe(self, task: str, codecs: Sequence[str]) -> Recipe:
        """The task's recipe with what the user asked for.

        Names that do not exist and rates that are none are refused here, before anything slow is imported.
        """
        recipe = recipe_for(task)
        for codec in codecs:
            read_codec_choice(codec).check_names()
        wishes = {name: getattr(self, name) for name in IN_RECIPE}
        wishes["rate"] = rate_or_none(self.rate)
        return replace(recipe, **{name: value for name, value in wishes.items() if value is not None})

    def show(
        self,
        title: str,
        name: str,
        recipes: tuple[Recipe, ...],
        checkpoints: CheckpointOptions | None = None,
        records: Path | None = None,
    ) -> None:
        """Run the recipes in one session and show what came out."""
        from thinwire_lab.cli.run_output import show_session
        from thinwire_lab.run.session import Session

        session = Session(
            title=title,
            name=name,
            recipes=recipes,
            out=self.out,
            data=self.data,
            network=self.network,
            checkpoints=checkpoints,
            picture=self.png,
            records=records,
        )
        show_session(session, self.json, self.tensorboard)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter `run: RunOptions` of a command by its fields, each an option of its own."""
    own = inspect.signature(command, eval_str=True).parameters
    hints = get_type_hints(RunOptions, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
        for field in fields(RunOptions)
    ]
    parameters = [
        parameter
        for name, given in own.items()
        for parameter in (shared if name == "run" else [given.replace(kind=keyword)])
    ]

    @wraps(command)
    def flat(**values: Any) -> None:
        run = RunOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        command(run=run, **values)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
