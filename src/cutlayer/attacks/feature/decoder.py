"""The network that reads embeddings for the attacks on features, and how it is fitted on few rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutlayer.attacks.completion.training import Standardised

Linear = tuple[Tensor, Tensor]
"""Weight (outputs, width) and bias (outputs,)."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """How a decoder is fitted; fixed beforehand.

    Attributes:
        hidden: width of both hidden layers.
        batch: rows per step. epochs: at most. patience: epochs without a better loss on the rows kept back.
        rate, decay: of AdamW.
        kept_back: share of the auxiliary rows that choose the epoch; no other rows do.
    """

    hidden: int = 256
    batch: int = 64
    epochs: int = 200
    patience: int = 15
    rate: float = 2e-3
    decay: float = 1e-2
    kept_back: float = 0.2


class Decoder(nn.Module):
    """A linear map plus a perceptron, on standardised embeddings; it begins as the linear map alone.

    Args:
        standard: scales the embeddings.
        start: weight (outputs, width) and bias (outputs,) of the linear map.
        hidden: width of both hidden layers.
    """

    def __init__(self, standard: Standardised, start: Linear, hidden: int) -> None:
        super().__init__()
        weight, bias = start
        outputs, width = weight.shape
        self.standard = standard
        self.linear = nn.Linear(width, outputs)
        self.deep = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.last = nn.Linear(hidden, outputs, bias=False)
        nn.init.zeros_(self.last.weight)
        self.linear.weight.data.copy_(weight)
        self.linear.bias.data.copy_(bias)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Answers (n, outputs)."""
        x = self.standard(embeddings)
        result: Tensor = self.linear(x) + self.last(self.deep(x))
        return result


def fit_decoder(
    embeddings: Tensor,
    targets: Tensor,
    start: Callable[[Tensor, Tensor], Linear],
    loss: Callable[[Tensor, Tensor], Tensor],
    fitting: Fitting = Fitting(),
) -> Decoder:
    """Fit a linear map, then a decoder from there; some of the rows are kept back and choose the epoch, or the start.

    So under noise that leaves a perceptron nothing to learn, what is returned is the regularised linear map.

    Args:
        embeddings: float32 (m, width), m at least 10. targets: (m, ...), what `loss` compares the answers with.
        start: from standardised embeddings (n, width) and their targets to the linear map that is best for them.
        loss: mean loss of answers (n, outputs) against targets (n, ...).
    """
    order = torch.randperm(len(embeddings))
    held = max(1, int(len(order) * fitting.kept_back))
    judge, learn = order[:held], order[held:]
    standard = Standardised(embeddings)
    model = Decoder(standard, start(standard(embeddings[learn]), targets[learn]), fitting.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=fitting.rate, weight_decay=fitting.decay, fused=True)
    best, stale, kept = _judged(model, embeddings, targets, judge, loss), 0, copy.deepcopy(model.state_dict())
    for _ in range(fitting.epochs):
        for rows in torch.split(learn[torch.randperm(len(learn))], fitting.batch):
            optimizer.zero_grad()
            loss(model(embeddings[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        found = _judged(model, embeddings, targets, judge, loss)
        stale = 0 if found < best else stale + 1
        if found < best:
            best, kept = found, copy.deepcopy(model.state_dict())
        if stale == fitting.patience:
            break
    model.load_state_dict(kept)
    return model.eval()


def _judged(
    model: Decoder, embeddings: Tensor, targets: Tensor, rows: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
) -> float:
    with torch.no_grad():
        return float(loss(model(embeddings[rows]), targets[rows]))
