"""Leaks: what an attack reads of the labels from a message, or from the output of a layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from cutlayer.attacks.knowledge import Need, condition
from cutlayer.config import FrozenModel
from cutlayer.config.party import Role
from cutlayer.results.number import Bounded, Number


class Attacker(FrozenModel):
    """Who has the messages that are attacked: one passive party, or several that collude.

    Attributes:
        party: The passive party on whose link the messages crossed; the names of colluding parties, joined by `+`.
        together: The colluding parties, which pool what they hold; empty where the attacker is one party.
    """

    party: str
    together: tuple[str, ...] = ()

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties whose messages the attacker has."""
        return self.together or (self.party,)

    @property
    def attacker(self) -> str:
        """The attacker in words.

        >>> Attacker(party="telco").attacker, Attacker(**colluding(["telco", "census", "shop"])).attacker
        ('telco', 'telco, census and shop together')
        """
        return in_words(self.party, self.together)


def colluding(parties: Sequence[str]) -> dict[str, Any]:
    """The fields of an `Attacker` of parties that pool what they hold.

    No name of a party has a `+`, so that the joined names name no single party.
    """
    return {"party": "+".join(parties), "together": tuple(parties)}


def in_words(party: str, together: Sequence[str] = ()) -> str:
    """An attacker in words: the name of a party, or those of parties that collude."""
    return f"{', '.join(together[:-1])} and {together[-1]} together" if together else party


class Attempt(Attacker):
    """One attack on one kind of message of one attacker, in one run; its leak may be undefined.

    Attributes:
        run: Label of the run.
        message: Kind of message.
        attack: Name of the attack.
        rows: Number of rows scored at the reported epoch.
        positives: Number of positive rows among them; in a multi-class task of the rarest class.
        rows_recorded: Number of rows whose messages were at hand: the followed rows, or those of the sampled steps of
            the reported epoch; `None` where that was not counted.
    """

    run: str
    message: Literal["gradient", "embedding", "part", "label"]
    attack: str
    rows: int
    positives: int
    rows_recorded: int | None = None

    @property
    def label(self) -> str:
        """`party/message/attack`."""
        return f"{self.party}/{self.message}/{self.attack}"


class Baseline(Attacker):
    """Baseline of an attacker's leaks.

    Attributes:
        own_columns: Leak of the attacker's own columns, by models fitted on all labels of the training rows; `None`
            where they are elsewhere.
        model: Name of the model that reaches it.
        chance: The largest leak of the attacks on the whole run where the labels, or the values of a regression, are
            permuted, on average; `None` where none of them ran.
        ideal: Leak of the ideal output, the score of a model of all columns, of which no system hides more from those
            who get it; `None` where no party grades rows, or columns are elsewhere.
    """

    own_columns: Number = None
    model: str = ""
    chance: Number = None
    ideal: Number = None


class CurvePoint(FrozenModel):
    """The leak with so many known labels.

    Attributes:
        labels: Number of rows whose labels the attacker knows.
        leak: Mean over draws of those rows of max(AUC, 1 - AUC), 0.5 (chance) to 1.
        deviation: Standard deviation over the draws.
        own_columns: Leak of the party's own columns to the same classifier with the same rows; `None` where they are
            elsewhere.
    """

    labels: int
    leak: float
    deviation: Number = None
    own_columns: Number = None


class LabelCurve(Attacker):
    """The leak of a message by the number of labels that the attacker knows.

    Attributes:
        message: Kind of message.
        attack: Name of the attack.
        points: The leak by number of labels, ascending.
    """

    message: Literal["gradient", "embedding", "part", "label"]
    attack: str
    points: tuple[CurvePoint, ...] = ()


class LeakResult(Attempt, Bounded):
    """The leak of one attack at its worst epoch, or over the whole run: one cell of the matrix of the audit.

    Attributes:
        protections: Names of the protections that were active in the run.
        leak: max(AUC, 1 - AUC), 0.5 (chance) to 1.
        low: Lower bound of the leak (95 % interval); 0.5 where it includes chance.
        high: Upper bound of the leak.
        epoch: The worst epoch, from 1.
        epochs_seen: Number of epochs that the worst was taken over.
        pooled_auc: Signed AUC over all sampled rows at once.
        batch_auc: Signed mean of the AUC of each sampled batch, whose leak this is.
        batches: Number of sampled batches with both classes.
        first_epoch_leak: Leak at the first epoch.
        last_epoch_leak: Leak at the last epoch.
        other_aucs: AUC of other scores that the paper names.
        hard_accuracy: Accuracy of the attack's own decisions, where the paper defines them.
        hard_auc: AUC of those decisions.
        assigned_accuracy: Accuracy after each batch's decided classes were renamed in the way that fits best.
        knowledge: Facts that the attacker was given.
        whole_run: Whether the attack scores each row once, from the messages of all epochs.
        variant: Name of the strongest of the attack's scores; empty for its first.
        true_positive_rate: Share of the positives that the attack finds at 1 % false positives; `None` where it was not
            measured.
        departed_auc: Held-out AUC of a model of the party's own columns that was trained on the labels that this attack
            inferred, without any known label; measured for the strongest such attack on each kind of message.
    """

    protections: tuple[str, ...] = ()
    leak: float
    epoch: int = Field(ge=1)
    epochs_seen: int
    pooled_auc: Number
    batch_auc: Number
    batches: int | None = None
    first_epoch_leak: Number
    last_epoch_leak: Number = None
    other_aucs: Mapping[str, Number] = Field(default_factory=dict)
    hard_accuracy: Number = None
    hard_auc: Number = None
    assigned_accuracy: Number = None
    knowledge: tuple[Need, ...] = ()
    whole_run: bool = False
    variant: str = ""
    true_positive_rate: Number = None
    departed_auc: Number = None


def worst_of(leaks: Iterable[LeakResult]) -> LeakResult | None:
    """The largest leak, to three digits; of equal ones one whose attacker knows nothing of single rows."""
    return max(leaks, key=lambda leak: (round(leak.leak, 3), not condition(leak.knowledge), leak.leak), default=None)


class LayerLeak(FrozenModel):
    """The leak of one layer's output, by one attack at its worst epoch.

    Attributes:
        run: Label of the run.
        party: Owner of the layer.
        side: Role of that party.
        layer: Name of the layer.
        index: Position along the owner's network, from 0.
        attack: Name of the attack.
        leak: max(AUC, 1 - AUC), 0.5 (chance) to 1.
        epoch: The worst epoch, from 1.
        batch_auc: Signed mean of the AUC of each sampled batch, whose leak this is.
        last_epoch_leak: Leak at the last epoch.
    """

    run: str
    party: str
    side: Role
    layer: str
    index: int
    attack: str
    leak: float
    epoch: int = Field(ge=1)
    batch_auc: Number = None
    last_epoch_leak: Number = None
