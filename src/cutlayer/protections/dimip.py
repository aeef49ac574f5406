"""DIMIP: train the passive bottom models to embeddings from which a predictor of the labels learns nothing."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.kernels.dependence.club import label_log_likelihood_gradient, vclub
from cutlayer.kernels.fits.perceptron import input_gradient, layer_outputs, views, weight_gradients
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.protections.contract.base import Asset, Context, Protection, Side
from cutlayer.protections.contract.tally import Tally
from cutlayer.protections.contract.views import ActiveView


class DIMIPConfig(FrozenModel):
    """Weight of the protection against the task, and the training of its predictors.

    Attributes:
        lam: The paper's lambda: the weight of the protection in a passive party's gradient; the task has 1 - lam.
        random_labels: Whether to add L_R, which draws the predictions towards labels of random rows.
        single_pass: Whether one pass through the predictor per step gives both its update and the gradient to send.
        predictor_steps: Steps of a predictor per training step; algorithm 1 has 1.
        hidden: Width of a predictor's two hidden layers.
        lr: Learning rate of a predictor's Adam.
    """

    lam: float = Field(ge=0, le=1, strict=True, description="weight of the protection; the task has 1 - lam")
    random_labels: bool = Field(default=True, strict=True)
    single_pass: bool = Field(default=False, strict=True)
    predictor_steps: int = Field(default=1, ge=1, le=1000, strict=True)
    hidden: int = Field(default=64, ge=1, le=65_536, strict=True)
    lr: float = Field(default=0.01, gt=0, strict=True)

    def _faults(self) -> Iterator[str]:
        if self.single_pass and self.predictor_steps > 1:
            yield "expected predictor_steps 1 with single_pass; leave one of them out"


class Predictor:
    """g_psi of one party: a three-layer perceptron from its embedding to the classes, with an Adam of its own.

    Args:
        widths: Widths of the embedding and the two hidden layers, and the number of classes.
        lr: Learning rate of Adam.
        seed: Seed of the initial weights, which are drawn as in `nn.Linear`.
        device: Device of the embeddings.
    """

    def __init__(self, widths: Sequence[int], lr: float, seed: int, device: torch.device) -> None:
        from torch.nn.utils import parameters_to_vector

        from cutlayer.kernels.fits.optimizers import Adam

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        shapes = [parameter.shape for layer in layers for parameter in (layer.weight, layer.bias)]
        drawn = parameters_to_vector(parameter for layer in layers for parameter in (layer.weight, layer.bias))
        drawn = drawn.detach().to(device)
        self._all = nn.Parameter(drawn)  # one tensor: Adam costs more per tensor than per number
        self._all.grad = torch.zeros_like(drawn)
        self._layers, self._gradients = _layers(self._all.detach(), shapes), _layers(self._all.grad, shapes)
        self._adam = Adam([self._all], lr=lr, fused=True)

    def read(self, h: Tensor) -> tuple[list[Tensor], Tensor]:
        """Output of each layer for embeddings h (n, width), and log g(y | h), (n, classes)."""
        from torch.nn.functional import log_softmax

        outputs = layer_outputs(self._layers, h)
        return outputs, log_softmax(outputs[-1], 1)

    def input_gradient(self, outputs: Sequence[Tensor], upstream: Tensor) -> Tensor:
        """Gradient (n, width) with respect to h, from the gradient `upstream` (n, classes) at the logits."""
        return input_gradient(self._layers, outputs, upstream)

    def ascend(self, outputs: Sequence[Tensor], upstream: Tensor) -> None:
        """One ascending step of Adam, from the gradient `upstream` at the logits."""
        weight_gradients(self._layers, outputs, -upstream, self._gradients)
        self._adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Copies of weights and moments."""
        moments = self._adam.state_dict()["state"].get(0, {})
        return {"weights": self._all.detach().clone(), "adam": {name: t.clone() for name, t in moments.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        with torch.no_grad():
            self._all.copy_(state["weights"])
        adam = self._adam.state_dict()
        adam["state"] = {0: {name: tensor.clone() for name, tensor in state["adam"].items()}} if state["adam"] else {}
        self._adam.load_state_dict(adam)


def _layers(vector: Tensor, shapes: Sequence[torch.Size]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer."""
    parts = views(vector, shapes)
    return list(zip(parts[::2], parts[1::2], strict=True))


class DIMIP(Protection[DIMIPConfig]):
    """Send party k the gradient of (1 - lam) L_C + lam L_A + lam L_R, where L_C is the task loss.

    A predictor g of the labels from the embedding h, one per party, is trained to maximise L_A, the mean of
    log g(y_i | h_i); party k descends that log-likelihood. L_R is the mean of -log g(y' | h_i), y' the label of a
    random training row for each row of the batch. L_A + L_R is the sampled vCLUB. Per step, by algorithm 1: g ascends
    L_A; then the terms' gradient is taken at the updated g, on the embeddings as received. With `single_pass` it is
    taken before the update, from the same pass. The top model and the active party's own bottom model learn from L_C
    alone.

    L_A + L_R is linear in g's logits, so it has no minimum: the result depends on the race of g with the bottom model,
    and a g that is too slow leaves labels in the embedding. The embedding may become useless to the top model too:
    compare with the active party alone. Initial weights and drawn labels are a function of the run's seed; they hide
    nothing.

    Reference: Sun, Du et al. 2023, Robust and IP-protecting vertical federated learning against unexpected quitting of
    parties (arXiv 2303.18178), algorithm 1; vCLUB: Cheng et al. 2020 (arXiv 2006.12013), sections 3.2 and 3.3.

    Guarantee: none, empirical. An estimate by one predictor bounds no other attacker.

    Advice: costs most of what the party adds (docs/results/model-completion.md).
    """

    name = "dimip"
    config = DIMIPConfig
    side = Side.ACTIVE
    protects = Asset.MODEL
    reference = "Sun, Du et al. 2023 (arXiv 2303.18178), algorithm 1"
    start = DIMIPConfig(lam=0.3)
    rank = 30
    tasks = frozenset({"binary", "multiclass"})
    no_guarantee = "a penalty on the information that one predictor finds in an embedding bounds nothing"
    counters = ("steps",)

    def __init__(self, settings: DIMIPConfig) -> None:
        super().__init__(settings)
        self._sums = Tally[str](defaultdict(float))
        self._last: dict[str, float] = {}
        self._predictors: dict[str, Predictor] = {}

    def setup(self, context: Context) -> None:
        """Build one predictor per passive party, once the protected labels are known."""
        super().setup(context)
        if context.labels is None or context.task is None:
            return
        self._pool = context.labels[context.training]
        shares = torch.bincount(self._pool, minlength=self.classes) / len(self._pool)
        self._shares = shares.to(context.device)
        self._seed = torch.initial_seed()  # of this party's own random state, which the job's seed decides
        inner = (self.settings.hidden, self.settings.hidden, self.classes)
        self._predictors = {
            party: Predictor(
                (context.widths[party], *inner), self.settings.lr, self._derived("weights", party), context.device
            )
            for party in context.peers
        }

    def cut_gradient(self, view: ActiveView) -> tuple[float, Mapping[str, Tensor]]:
        """The weight of the task, and lam times the gradient (n, width) of L_A + L_R for each passive party."""
        self.count(steps=1)
        with torch.no_grad():
            terms = {party: self._term(e, party, view) for party, e in view.embeddings.items()}
        return 1.0 - self.settings.lam, terms

    def _term(self, h: Tensor, party: str, view: ActiveView) -> Tensor:
        settings, predictor, labels = self.settings, self._predictors[party], view.labels_of(party)
        if not settings.single_pass:
            for _ in range(settings.predictor_steps):
                outputs, log_probs = predictor.read(h)
                predictor.ascend(outputs, label_log_likelihood_gradient(log_probs, labels))
        outputs, log_probs = predictor.read(h)
        likelihood = label_log_likelihood_gradient(log_probs, labels)
        upstream = likelihood
        if settings.random_labels:
            drawn = self._drawn(len(h), party, view.step)
            upstream = likelihood - label_log_likelihood_gradient(log_probs, drawn)
        gradient = predictor.input_gradient(outputs, settings.lam * upstream)
        if settings.single_pass:
            predictor.ascend(outputs, likelihood)
        self._add_estimates(party, log_probs, labels)
        return gradient

    def _drawn(self, n: int, party: str, step: int) -> Tensor:
        """The labels of n training rows drawn uniformly."""
        draw = torch.Generator().manual_seed(self._derived(f"labels/{step}", party))
        return to_device(self._pool[torch.randint(len(self._pool), (n,), generator=draw)], self.context.device)

    def _derived(self, purpose: str, party: str) -> int:
        digest = hashlib.blake2b(f"dimip/{self._seed}/{purpose}/{party}".encode(), digest_size=7).digest()
        return int.from_bytes(digest, "little")

    def _add_estimates(self, party: str, log_probs: Tensor, labels: Tensor) -> None:
        self._sums.add(f"vclub.{party}", vclub(log_probs, labels, self._shares))
        self._sums.add(f"predictor_accuracy.{party}", (log_probs.argmax(1) == labels).double().mean())
        self._sums.add(f"steps.{party}", 1.0)

    def epoch_metrics(self) -> Mapping[str, float]:
        """The epoch's mean vCLUB in nats and the predictor's accuracy, by party: estimates, never a guarantee."""
        self._last = self._means()
        self._sums = Tally(defaultdict(float))
        return self._last

    def _means(self) -> dict[str, float]:
        sums = self._sums.sums
        named = [name.partition(".") for name in sums if not name.startswith("steps.")]
        return {f"{name}.{party}": sums[f"{name}.{party}"] / sums[f"steps.{party}"] for name, _, party in named}

    def metrics(self) -> Mapping[str, float]:
        """Training steps, and the estimates of the last epoch."""
        return {"steps": self.counts["steps"], **(self._means() or self._last)}

    def state_dict(self) -> dict[str, Any]:
        """Sums, and every predictor with its optimiser."""
        return {
            "sums": dict(self._sums.sums),
            "last": dict(self._last),
            "predictors": {f"of {party}": predictor.state_dict() for party, predictor in self._predictors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._sums, self._last = Tally(defaultdict(float, state["sums"])), dict(state["last"])
        for party, predictor in self._predictors.items():
            predictor.load_state_dict(state["predictors"][f"of {party}"])
