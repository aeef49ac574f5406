"""A party's guard: whether it scrutinises what it receives, and its alarm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cutlayer.config.base import FrozenModel
from cutlayer.config.phases import Phase

if TYPE_CHECKING:
    from cutlayer.config.case import Case, DeclaredProtection


class GuardConfig(FrozenModel):
    """Scrutiny of what a party receives in a training of steps, for signs that its partner departs from the protocol.

    A passive party judges the gradients that come back, the active party the embeddings that arrive.

    Attributes:
        on_alarm: `stop` ends the run at the first alarm, `warn` records it and goes on.
        classes: Number of classes of the label, which a passive party must know of its partner: honest gradients lie
            near one direction fewer. 2 also stands for a regression.
        protected: Whether the partner has stated that it protects what it sends by noise, signs, compression or
            penalties. Honest gradients then leave the directions of the label too, and honest embeddings do not
            follow those of the epoch before or leave few rows apart, so that these signs are not looked for.
    """

    on_alarm: Literal["stop", "warn"]
    classes: int = Field(default=2, ge=2, le=64)
    protected: bool = False


class Alarm(FrozenModel):
    """A sign that a partner does not follow the protocol.

    Attributes:
        party: Party that raises the alarm.
        peer: Party that it is about.
        epoch: Number of the epoch, from 1.
        step: Number of the step within the epoch, from 1.
        detail: What was seen.
    """

    party: str
    peer: str
    epoch: int
    step: int
    detail: str

    @property
    def when(self) -> str:
        """Epoch and step in words."""
        return f"epoch {self.epoch}, step {self.step}"


def guard_faults(case: Case) -> Iterator[str]:
    """Guards have something to judge, and know what honest messages look like."""
    job = case.job
    for name, party in job.parties.items():
        if party.guard is None:
            continue
        where, partners = f"parties.{name}.guard", job.passives if name == job.active else (name,)
        if all(Phase.RELEASE in job.phases_of(partner) for partner in partners):
            remedy = "leave it out: no gradient comes back, and nothing depends on one"
            yield f"expected no {where} where rows are released once, got one; {remedy}"
        changing = case.acting_protections(name, "embedding_out")
        if changing and name != job.active:
            # Honest gradients then follow from the noise that was sent, which was an alarm in honest trainings.
            remedy = "leave one of both out; noise on embeddings bounds what a hijack can rebuild"
            yield f"expected {where} without {changing[0]}, got both; {remedy}"
        bending = [each.name for sender in job.peers_of(name) for each in case.protections(sender) if _bends(each)]
        if bending and not party.guard.protected:
            remedy = "what an honest partner sends then has signs of an attack"
            yield f"expected {where}.protected: true beside {bending[0]}, got none; {remedy}"
        if job.task == "multiclass" and name != job.active and "classes" not in party.guard.model_fields_set:
            yield f"expected {where}.classes in a multi-class task, got none; state the number of classes"


def _bends(protection: DeclaredProtection) -> bool:
    """Whether a protection changes an embedding, how it is learned, or a row's gradient beyond sign and length."""
    acts = protection.acts_at("embedding_out", "local_loss", "gradient_out", "cut_gradient")
    return acts and not protection.keeps_directions
