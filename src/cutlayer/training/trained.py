"""The models that a finished run ended with, out of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from cutlayer.config import Job
from cutlayer.models import BottomModel, Inputs, TopModel, build_bottom, build_top
from cutlayer.parties.checkpoint import Checkpoints
from cutlayer.training.folder import RunFolder


def load_bottom(job: Job, folder: RunFolder, party: str, inputs: Inputs) -> BottomModel:
    """The bottom model of one party, in evaluation mode.

    Args:
        inputs: Encoded columns that it was built for.
    """
    bottom = build_bottom(job.model.bottom_of(party), inputs)
    restore(bottom, "bottom", job, folder, party)
    return bottom


def load_top(job: Job, folder: RunFolder, widths: Mapping[str, int], outputs: int) -> TopModel:
    """The top model, in evaluation mode.

    Args:
        widths: Number of columns of every party's embedding, in the job's order.
        outputs: Number of logits of the task.
    """
    top = build_top(job.model.top, widths, outputs, may_leave=job.passives)
    restore(top, "top", job, folder, job.active)
    return top


def restore(module: nn.Module, name: str, job: Job, folder: RunFolder, party: str) -> None:
    """Load the weights that a run ended with into `module`, which `party` calls `name`."""
    checkpoints = Checkpoints(folder.path / "checkpoint" / party, party, job.digest())
    tensors, _ = checkpoints.load_kept(best=job.keeps_best)
    prefix = f"module/{name}."
    module.load_state_dict({k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)})
    module.eval()
