"""Draws docs/figures/front-ends.png from docs/records/front-ends.jsonl, of examples/small_transformers.py.

    python tools/front_end_curves.py

Needs thinwire-lab (`make setup`); trains nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

from thinwire_lab.report.drawing import bare, colours, new_figure, save

DOCS = Path(__file__).resolve().parents[1] / "docs"
NETS = {"gpt2": "GPT-2-like, tiny Shakespeare", "vit": "ViT-like, CIFAR-10"}
WAYS = {"trainer": "Transformers' Trainer", "accelerate": "Accelerate"}


def main() -> None:
    lines = (DOCS / "records/front-ends.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    palette = colours(run["codec"] for run in runs)
    figure = new_figure(9, 3.4, dpi=150)
    for net, axes in zip(NETS, figure.subplots(1, len(NETS)), strict=True):
        for run in (run for run in runs if run["net"] == net):
            steps, losses = zip(*run["curve"], strict=True)
            ratio = run.get("thinwire/ratio", 1.0)
            label = "plain DDP" if run["codec"] == "ddp" else f"{run['codec']}, {ratio:.1f}x fewer bytes"
            axes.plot(steps, losses, color=palette[run["codec"]], label=label)
            title = f"{NETS[net]}, {WAYS[run['way']]}"
        axes.set_title(title, fontsize="medium")
        axes.set(xlabel="steps", ylabel="training loss", xlim=(0, None))
        axes.legend(frameon=False)
        bare(axes)
    save(figure, DOCS / "figures/front-ends.png")


if __name__ == "__main__":
    main()
