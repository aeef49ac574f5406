"""Shadow models for membership inference: the job's own models, trained anew on rows that are known to be in or out.

This takes all parties' rows, the labels and the top model, so it is done only where all parties ran in one process.
Nothing leaves the machine by it: protections act as they would, without an account, on noise that is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import MAX_SHADOW_ROWS, Shadows, Simulation
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.store import Store
from cutlayer.data.streams import RandomStream
from cutlayer.errors import NotApplicable
from cutlayer.kernels.rows.one_hot import one_hot_columns
from cutlayer.models import bottom_of
from cutlayer.parties.session.local import EVALUATION_ROWS, context_of
from cutlayer.parties.session.state import restore_chain
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.protections import build_chain
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.training.joint import JointModel, train_module
from cutlayer.training.keys import starting_keys
from cutlayer.training.trained import Run

MAX_ATTACKED = 4000
"""Maximum number of training rows that are attacked, and as many held-out ones."""


@dataclass(frozen=True, eq=False)
class DefendedModel:
    """The models of a job with the passive parties' protections.

    Attributes:
        joint: All bottom models and the top model.
        chains: Chains of the passive parties' protections, by party.
    """

    joint: JointModel
    chains: Mapping[str, Chain]


class ShadowRoom:
    """A finished run, the rows that are attacked in it, and shadows of its models.

    The shadows know no protection of the active party: they learn from the true labels and send no gradient.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.job = run.job
        self.stores = run.stores
        self.keys = starting_keys(run.origin.path, run.job.parties)
        self.labels = run.truth
        self.task = run.task
        self._choose(run.training)
        self._shadows: dict[tuple[int, bytes], DefendedModel] = {}

    def _choose(self, training: Tensor) -> None:
        """Choose as many training as held-out rows to attack; all other rows, up to a bound, are the attacker's own."""
        generator = np.random.default_rng([self.job.train.seed, RandomStream.SHADOW_ROWS])
        held_out = self.run.reported_rows.numpy()
        count = min(len(held_out), len(training) // 2, MAX_ATTACKED)
        if not count:
            wanted = "two training rows and a held-out one that all parties have"
            raise NotApplicable.expected(wanted, f"{len(training)} and {len(held_out)}")
        chosen = generator.permutation(training.numpy())[:count], generator.permutation(held_out)[:count]
        self.attacked = torch.from_numpy(np.concatenate(chosen))
        self.member = torch.arange(len(self.attacked)) < count
        every = self.run.held.select_held_by_all(np.arange(len(self.labels)))
        rest = np.setdiff1d(every, np.concatenate([*chosen, held_out]))
        self.shadow_rows = torch.from_numpy(np.sort(generator.permutation(rest)[:MAX_SHADOW_ROWS]))

    @property
    def epochs(self) -> int:
        """Epochs that the run's final models were trained for."""
        lines = self.run.folder.history()
        best = [line["epoch"] + 1 for line in lines if line["best"]]
        return int(best[-1]) if self.job.keeps_best and best else len(lines)

    def view(self, party: str) -> FeatureView:
        """View of the active party on the attacked rows, under the models of the run."""
        embeddings, logits = self._replayed
        return FeatureView(party, self.attacked, embeddings[party], logits, self.labels[self.attacked])

    def simulation(self, party: str) -> Simulation:
        """The active party's means to simulate a party's bottom model, for the attacked rows."""
        embeddings, _ = self._replayed
        inputs = self.stores[party].columns.inputs
        top = self._final.joint.top.requires_grad_(False)

        def logits(simulated: Tensor, indices: Tensor) -> Tensor:
            rest = {name: embedding[indices] for name, embedding in embeddings.items() if name != party}
            return top({name: rest.get(name, simulated) for name in embeddings})

        return Simulation(self.task, lambda: bottom_of(self.job, party, inputs), logits)

    @cached_property
    def _replayed(self) -> tuple[dict[str, Tensor], Tensor]:
        """All parties' embeddings of the attacked rows under the models of the run, and the logits."""
        return self._released(self._final, self.attacked)

    @cached_property
    def _final(self) -> DefendedModel:
        """The models of the run."""
        model = self._model(self.attacked)
        for name, bottom in zip(self.stores, model.joint.bottoms, strict=True):
            self.run.restore(bottom, "bottom", name)
        self.run.restore(model.joint.top, "top", self.job.active)
        for name, chain in model.chains.items():
            restore_chain(chain, self.run.checkpoint(name))
        return model

    def shadows(self, party: str) -> Shadows:
        """The attacker's means to train shadows."""

        def train(inside: Tensor, number: int) -> Callable[[Tensor], FeatureView]:
            # The same halves come again for every party, so each shadow is trained once.
            key = number, inside.numpy().tobytes()
            if key not in self._shadows:
                self._shadows[key] = self._shadow(inside, number)
            shadow = self._shadows[key]
            return lambda rows: self._view(shadow, rows, party)

        return Shadows(self.task, self.shadow_rows, train, len(self.run.training))

    def _shadow(self, inside: Tensor, number: int) -> DefendedModel:
        """Train one shadow on some rows, by the job's schedule."""
        train = self.job.train
        seed = self.job.train.seed + number
        model = self._model(inside)
        schedule = Schedule(inside.numpy(), min(train.rows_per_step(len(inside)), len(inside)), seed, train.shuffle)

        def loss(rows: Tensor, epoch: int, step: int) -> Tensor:
            count = epoch * schedule.steps_per_epoch + step
            embeddings = self._embeddings(model, rows, Mode.TRAIN, epoch, count)
            return model.joint.top.objective(embeddings, self.labels[rows], TrainingLoss(self.task))

        train_module(model.joint, train.optimizer, schedule.epoch, self.epochs, loss, seed=seed)
        model.joint.eval()
        return model

    def _view(self, model: DefendedModel, rows: Tensor, party: str) -> FeatureView:
        """View of the active party on some rows of a passive party."""
        embeddings, logits = self._released(model, rows)
        return FeatureView(party, rows, embeddings[party], logits, self.labels[rows])

    def _released(self, model: DefendedModel, rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """All parties' embeddings of some rows, by party, and the logits."""
        parts, logits = [], []
        with torch.no_grad():
            for number, batch in enumerate(evaluation_batches(rows, EVALUATION_ROWS)):
                parts.append(self._embeddings(model, batch, Mode.EVALUATE, self.epochs, number))
                logits.append(model.joint.top(parts[-1]))
        return {name: torch.cat([part[name] for part in parts]) for name in self.stores}, torch.cat(logits)

    def _embeddings(self, model: DefendedModel, rows: Tensor, mode: Mode, epoch: int, step: int) -> dict[str, Tensor]:
        """All parties' embeddings, those of passive parties as they would release them."""
        embeddings: dict[str, Tensor] = {}
        for (name, store), bottom in zip(self.stores.items(), model.joint.bottoms, strict=True):

            def embed(at: Tensor, bottom: nn.Module = bottom, store: Store = store) -> Tensor:
                result: Tensor = bottom(*store.gather(at))
                return result

            def inputs(at: Tensor, store: Store = store) -> Tensor:
                return one_hot_columns(*store.gather(at), store.columns.inputs.cardinalities)

            embeddings[name] = embed(rows)
            if name in model.chains:
                view = PassiveView(mode, epoch, step, rows, embed, inputs=inputs)
                embeddings[name] = model.chains[name].embedding_out(embeddings[name], view)
        return embeddings

    def _model(self, training: Tensor) -> DefendedModel:
        """The models as they begin, and the protections, set up one by one, since a chain would open an account."""
        job, train = self.job, self.job.train
        joint = JointModel(job, self.stores, self.task, self.keys)
        key = train.seed.to_bytes(32, "little")  # nothing is sent under it, and the results must repeat
        chains = {}
        for name in job.passives:
            chain = build_chain(name, "passive", job.parties[name].protections, f"parties.{name}.privacy")
            context = context_of(job, name, {name: joint.widths[name]}, training, key, key)
            for protection in chain.protections:
                protection.setup(context)
            chains[name] = chain
        return DefendedModel(joint, chains)
