"""Evaluation: the score of a model on the test set, computed by all workers together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from thinwire_lab.data import Task
from thinwire_lab.run.peers import Peers

BATCH = 200


@dataclass(frozen=True)
class Scores:
    """Mean losses, the share of right answers, and the number by which the task is judged."""

    loss: float
    test_loss: float
    accuracy: float
    score: float


def evaluate(net: nn.Module, task: Task, peers: Peers, losses: list[float]) -> Scores:
    """The scores of `net`; `losses` are this process's training losses since the last evaluation.

    1. take over rank 0's running statistics, as DDP does before every forward pass;  2. sum up losses and
    right answers over this process's share of the test set;  3. add the sums of all processes.
    """
    peers.take_buffers(net)
    mine = [sum(losses), float(len(losses)), *_test_sums(net, task, peers.rank, peers.size)]
    train_loss, train_count, test_loss, right, test_count = peers.sums(mine)
    mean_loss, share_right = test_loss / test_count, right / test_count
    return Scores(train_loss / train_count, mean_loss, share_right, task.score(mean_loss, share_right))


@torch.no_grad()
def _test_sums(net: nn.Module, task: Task, rank: int, workers: int) -> tuple[float, float, float]:
    loss, right, count = 0.0, 0.0, 0.0
    net.eval()
    for start in range(rank * BATCH, len(task.test), workers * BATCH):
        x, y = task.batch(task.test, np.arange(start, min(start + BATCH, len(task.test))))
        logits: Tensor = net(x)
        loss += task.loss(logits, y).item() * y.numel()
        right += float((logits.argmax(-1) == y).sum())
        count += y.numel()
    net.train()
    return loss, right, count
