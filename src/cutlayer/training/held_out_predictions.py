"""Predictions for the held-out rows that a run is measured on, at the active party."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cutlayer.errors import RunFolderError
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.results.score_table import ID
from cutlayer.results.scores import write_scores
from cutlayer.training.folder import RunFolder


def predictions_path(folder: RunFolder) -> Path:
    """Path of the predictions in a run folder."""
    return folder.path / "predictions.parquet"


def write_test_predictions(folder: RunFolder, active: ActiveOutcome) -> None:
    """Write the predictions that the run's metrics are of: those for the test rows, else for the validation rows.

    Args:
        folder: Folder of the run.
        active: Results of the run at the active party.
    """
    present = {name: np.ones(len(active.ids), dtype=bool) for name in active.widths}
    present |= {name: mask.numpy() for name, mask in active.present.items()}
    write_scores(predictions_path(folder), active.task, active.ids, active.logits, present)


def reported_ids(folder: RunFolder) -> pa.ChunkedArray:
    """Ids of the rows that the run is measured on, in the common order.

    Raises:
        RunFolderError: The run did not leave its predictions.
    """
    path = predictions_path(folder)
    try:
        return parquet.read_table(path, columns=[ID]).column(ID)
    except (OSError, pa.ArrowException) as damage:
        wanted = f"the predictions of the run at {path}"
        raise RunFolderError.expected(wanted, str(damage).splitlines()[0][:200], "name tables of your own") from None
