"""What a receiver reads of a partner's columns by each attack, with no known row, with other rows and with known ones.

The jobs are those that `init` writes but for the form of the release; the attacks are those of the partner's audit.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.release_forms import FORMS, form_job
from benchmarks.utility.datasets import DataSet, load
from benchmarks.utility.sides import LABEL, write_tables
from cutlayer.cli.init import init
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys

DATA = ("adult", "bank", "credit", "motor", "breast")
ROWS = 8_000
ATTACKS = ("lattice", "two_valued", "components", "naming", "inversion")
RELEASES = (*((form, None) for form in FORMS if "8 columns" not in form), ("permutation", 64.0), ("permutation", 8.0))


@dataclass(frozen=True)
class ColumnsRead:
    """One attack on one release.

    Attributes:
        data: Name of the data set.
        form: Form of the release.
        epsilon: Total epsilon of `dp_embedding`; `None` without it.
        attack: Name of the attack.
        known: Number of rows whose features the attacker had.
        exact: Mean over columns of the share of rows read exactly; `None` for an attack that rebuilds.
        baseline: The same of a constant guess.
        read: Number of columns read exactly in 99 % of the rows.
        columns: Number of columns.
        r2: Mean R² of the columns.
    """

    data: str
    form: str
    epsilon: float | None
    attack: str
    known: int
    exact: float | None
    baseline: float | None
    read: int | None
    columns: int
    r2: float | None


def readings(
    name: str, data: DataSet, form: str = "permutation", epsilon: float | None = None, seed: int = 0
) -> Iterator[ColumnsRead]:
    """Release a partner's table in a form, and run the attacks of its audit."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-columns-") as scratch:
        folder = Path(scratch)
        write_tables(data, folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, yes=True)
        changes: dict[str, dict[str, Any]] = {
            "bank": {"audit": {"every": "never", "attacks": []}},
            "partner": {"audit": {"attacks": ATTACKS}},
        }
        job = form_job(folder, form, epsilon, seed, changes, compare=())
        execute(job, folder / "run", Options(Keys(folder / "keys")), Progress())
        for result in RunFolder(folder / "run").audit.features:
            exact = result.metric == "exact"
            yield ColumnsRead(
                data=name,
                form=form,
                epsilon=epsilon,
                attack=result.attack,
                known=result.known,
                exact=result.value if exact else None,
                baseline=result.baseline if exact else None,
                read=int(result.metrics["columns_read"] or 0) if exact else None,
                columns=len(result.columns),
                r2=result.metrics["r2"] if exact else result.value,
            )


def main() -> None:
    """Print one line of JSON for each attack on each release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--names", nargs="*", default=DATA)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    for name in arguments.names:
        data = load(name, arguments.data).drawn(arguments.rows)
        for form, epsilon in RELEASES:
            for result in readings(name, data, form, epsilon):
                print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main()
