"""Which ids of a list a party has, or had: a mistyped list deletes no model, and a row that is gone is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from cutlayer.accounting.run_store import LEDGER_FILE, RUN_MARKER_FILE, RunStore, words_of
from cutlayer.data.ids import rule_free_digests
from cutlayer.data.party_data import PartyTable
from cutlayer.training.keys import grade_memory


def unknown_ids(
    listed: PartyTable, table: PartyTable, secret: Path, runs: Sequence[Path], files: Iterable[Path]
) -> set[str]:
    """Listed ids that no record of a party has; none where its records cannot tell.

    Records are its table, the ledger of all runs, the grades that it remembers, and the rows of its alignments. They
    cannot tell of a run that the ledger has not, as one by a supplied key or of another ledger, and of several keys.

    Args:
        listed: The ids.
        table: The party's table now, with the rows that were forgotten.
        secret: File of the party's secret.
        runs: The party's folders in the run folders of the job.
        files: Tables of rows that were aligned for the job, with a column `id`.

    Raises:
        CheckpointError: The ledger or the grades are damaged.
    """
    ledger = RunStore(secret.with_name(LEDGER_FILE))
    if listed.keys or not all(ledger.has_run(run / RUN_MARKER_FILE) for run in runs):
        return set()
    plain, now = (each.rule_free_digests(each.digests) for each in (listed, table))
    # By the rule of then, which may have been another one; but a row of now that differs in it is another row.
    known = ledger.has_rows(plain) | grade_memory(secret).has_rows(plain)
    text = csv.ConvertOptions(column_types={"id": pa.string()}, include_columns=["id"])
    try:
        for path in files:
            known |= _among(plain, rule_free_digests(csv.read_csv(path, convert_options=text).column("id")))
    except (OSError, KeyError, pa.ArrowInvalid):
        return set()
    known = _among(listed.digests, table.digests) | (known & ~_among(plain, now))
    return {*listed.ids(np.flatnonzero(~known)).cast(pa.string()).to_pylist()}


def _among(digests: npt.NDArray[np.uint8], others: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return np.isin(words_of(digests), words_of(others))
