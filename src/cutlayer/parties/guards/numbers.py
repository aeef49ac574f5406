"""Checks against numbers that would destroy a model, in messages, in own results and in checkpoints."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from torch import Tensor

from cutlayer.channel import Message
from cutlayer.errors import Diverged, ProtocolError
from cutlayer.parties.compute.readings import Readings

SATURATED_LOSS = 1e-6
"""Loss up to which zeros are expected: in float32 the gradient of a right answer is 0 from a loss of 4e-8 on."""
NO_GRADIENT_REMEDY = (
    "the top model's hidden units may be inactive for all rows: train with a lower train.optimizer.lr, a wider "
    "model.top, or model.top.activation silu"
)
_BROKEN_NUMBERS = "NaN or infinity, or numbers above 1e19"
_REMEDY = "lower train.optimizer.lr, or scale the columns"


def check_received(message: Message, limit: float, key: str, readings: Readings | None = None) -> None:
    """Refuse an embedding or gradient that is not finite or has a row above this party's limit.

    One NaN would spread to all weights with the next step, and from there into every later checkpoint.

    Args:
        message: Message with one float32 matrix (n, d), whose epoch and step were checked.
        limit: Maximum Euclidean norm of a row, above 0.
        key: Key of the private part that holds the limit, for the error.
        readings: Reads the norms later; they are read at once by default.

    Raises:
        ProtocolError: Names the sender, the epoch and the step.
    """
    ((name, rows),) = message.tensors.items()
    # Not the message: what waits would hold its tensors, those of many steps at once.
    sender, epoch, step = message.sender, message.epoch, message.step

    def refusal(norm: float) -> ProtocolError:
        which = f"{name} of {sender} for epoch {epoch}, step {step}"
        if not math.isfinite(norm):
            return ProtocolError.expected(f"finite numbers in the {which}", _BROKEN_NUMBERS, "its training diverged")
        remedy = f"its training diverged, or it is not honest; {key} is this party's own limit"
        return ProtocolError.expected(f"rows of norm up to {limit:g} in the {which}", f"{norm:.3g}", remedy)

    (readings or Readings()).check_rows(rows, limit, refusal)


def check_own(rows: Tensor, limit: float, party: str, what: str, readings: Readings | None = None) -> None:
    """Raise before a party protects and sends values that no peer would accept.

    Before, because noise on a row of NaN, or a clipped one, would look like any other.

    Args:
        rows: Embeddings or gradients of this party's own model, float32 (n, d).
        limit: Maximum Euclidean norm of a row, above 0.
        party: Name of this party.
        what: Kind of the rows, with epoch and step, for the error.
        readings: Reads the norms later; they are read at once by default.

    Raises:
        Diverged: A number is not finite, or a row is longer.
    """

    def refusal(norm: float) -> Diverged:
        got = f"a row of norm {norm:.3g}, above {limit:g}" if math.isfinite(norm) else _BROKEN_NUMBERS
        return Diverged(f"training diverged: the {what} at {party} has {got}; {_REMEDY}")

    (readings or Readings()).check_rows(rows, limit, refusal)


def check_gradients(
    gradients: Mapping[str, Tensor], limit: float, party: str, epoch: int, step: int, readings: Readings | None = None
) -> None:
    """`check_own` of the cut gradients of a step for each passive party, by its name."""
    for name, gradient in gradients.items():
        check_own(gradient, limit, party, f"cut gradient for {name} in epoch {epoch}, step {step}", readings)


def check_loss(loss: float, party: str, epoch: int, step: int) -> None:
    """Raise `Diverged` if a loss is not finite: its gradients would destroy the models of the peers."""
    if not math.isfinite(loss):
        raise Diverged(f"training diverged: the loss at {party} is {loss} in epoch {epoch}, step {step}; {_REMEDY}")


def check_weights(tensors: Mapping[str, Tensor], party: str, epoch: int) -> None:
    """Raise before weights or an optimiser state that are not finite replace a good checkpoint.

    Args:
        tensors: Tensors of the party's state, as a checkpoint holds them.
        party: Name of the party.
        epoch: Epoch after which they would be saved.

    Raises:
        Diverged: A number is not finite; names the party and the epoch.
    """
    mine = {k: t for k, t in tensors.items() if k.startswith(("module/", "optimizer/")) and t.is_floating_point()}
    # NaN or infinity among the numbers is in their sum too; a sum of finite ones that is not finite is looked into.
    broken = [name for name, t in mine.items() if not (math.isfinite(t.sum().item()) or bool(t.isfinite().all()))]
    if broken:
        raise Diverged(
            f"training diverged: after epoch {epoch} {broken[0]} and {len(broken) - 1} more tensors of {party} hold "
            f"NaN or infinity; that epoch was not saved, and the previous checkpoint is intact; {_REMEDY}"
        )


def warn_of_zeros(party: str, epoch: int) -> None:
    """Warn that no model learned anything in an epoch; its metrics alone look like those of a hard task.

    Args:
        party: Name of the active party.
        epoch: Number of the epoch, from 0.
    """
    warnings.warn(
        f"{party}: all gradients of epoch {epoch + 1} are exactly zero, so that no model learns; {NO_GRADIENT_REMEDY}",
        stacklevel=2,
    )
