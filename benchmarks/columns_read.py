"""What a receiver reads of a partner's columns by each attack, with no known row, with other rows and with known ones.

The jobs are those that `init` writes but for the form of the release; the attacks are those of the partner's audit.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML

from benchmarks.release_forms import EPSILONS, FormOfData, form_job
from benchmarks.three_tables import LABEL as STATUS
from benchmarks.three_tables import write_three_tables
from benchmarks.utility.datasets import load
from benchmarks.utility.sides import LABEL, write_tables
from cutlayer.attacks.feature.base import FeatureAttack, Reconstruction, encoded_slices
from cutlayer.attacks.feature.components import Components
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.lattice import Lattice
from cutlayer.attacks.feature.naming import Naming
from cutlayer.attacks.feature.readings import Readings
from cutlayer.attacks.feature.two_valued import TwoValued
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features import population_cases, unknown_cases
from cutlayer.audit.features.exact_share import measure_readings
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.cli.init import init
from cutlayer.config.job import Job
from cutlayer.data.encoded import ColumnSpec
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.features import FeatureResult
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.malicious_runs import auxiliary_indices

DATA = ("adult", "bank", "credit", "motor")
MADE: Mapping[str, bool] = {"loans": False, "loans as text": True}
"""Names of the made tables, and whether all that is no plain number is text in them."""
ROWS = 4_000
RELEASES = (
    *((form, epsilon) for form in ("rotation", "permutation", "permutation of intervals") for epsilon in EPSILONS),
    ("rotation of intervals", None),
)
NAMES = ("loans", *DATA, "loans as text")
KNOWN = (512, 1_000)
"""Known rows of `inversion`; half of the released ones at most."""
UNAWARE = (Lattice(), TwoValued(), Components())


@dataclass(frozen=True)
class ColumnsRead(FormOfData):
    """One attack on one release.

    Attributes:
        party: Owner of the columns.
        attack: Name of the attack.
        known: Number of rows whose features the attacker had.
        rows: Number of attacked rows.
        exact: Mean over columns of the share of rows read exactly.
        baseline: The same of a constant guess.
        read: Number of columns read exactly in 99 % of the rows.
        columns: Number of columns.
        r2: Mean R² of the columns.
    """

    party: str
    attack: str
    known: int
    rows: int
    exact: float
    baseline: float
    read: int
    columns: int
    r2: float


def readings(
    name: str, write: Callable[[Path], None], label: str, form: str, epsilon: float | None = None, seed: int = 0
) -> Iterator[ColumnsRead]:
    """Release the tables of all partners in a form, and attack what each of them sent.

    Args:
        name: Name of the tables.
        write: Writes them into a folder.
        label: Their label column.
        form: Form of the release.
        epsilon: Total epsilon of `dp_embedding`; `None` without it.
        seed: Seed of the job.
    """
    with tempfile.TemporaryDirectory(prefix="cutlayer-columns-") as scratch:
        folder = Path(scratch)
        write(folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=label, protect="labels", yes=True)
        unaudited: dict[str, dict[str, Any]] = {
            name: {"audit": {"attacks": []}} for name in YAML(typ="safe").load(folder / "job.yaml")["parties"]
        }
        job = form_job(folder, form, epsilon, seed, unaudited, compare=())
        # The top model sees what was released; nothing of it is attacked.
        job = job.model_copy(update={"model": job.model.model_copy(update={"top": {"kind": "linear"}})})
        execute(job, folder / "run", Options(Keys(folder / "keys")), Progress())
        run = RunFolder(folder / "run")
        for party in job.passives:
            for attack, case, result in attacked(job, run, party):
                yield _record(FormOfData(name, form, epsilon), party, attack, case, result)


def attacked(job: Job, run: RunFolder, party: str) -> Iterator[tuple[str, FeatureCase, object]]:
    """What each attack read of a party's only release: its name, the case and its result."""
    seed = job.train.seed
    (case,) = unknown_cases(job, run, run, party)
    (others,) = population_cases(job, run, run, party)
    cases: list[tuple[FeatureAttack[Any], FeatureCase]] = [(attack, case) for attack in UNAWARE] + [(Naming(), others)]
    drawn = auxiliary_indices(len(case.view.rows), seed)
    counts = sorted({min(count, len(drawn)) for count in KNOWN})
    cases += [(Inversion(), _with_known(case, drawn[:count])) for count in counts]
    for attack, one in cases:
        yield attack.name, one, attack(one.view, one.knowledge, seed)


def _with_known(case: FeatureCase, indices: torch.Tensor) -> FeatureCase:
    """A case in which some rows are known, and all others attacked."""
    columns, numbers = case.columns, case.numbers
    if columns is None or numbers is None or isinstance(case.truth, torch.Tensor):
        raise ValueError("expected a case of columns")
    known = Auxiliary(columns, indices, *(part[indices] for part in case.truth))
    rest = known.unknown(len(case.view.rows))
    truth = case.truth[0][rest], case.truth[1][rest]
    return FeatureCase(
        case.release, case.view, Knowledge(auxiliary_rows=known), truth, columns=columns, numbers=numbers[rest]
    )


def _record(release: FormOfData, party: str, attack: str, case: FeatureCase, result: object) -> ColumnsRead:
    if case.columns is None or case.numbers is None or isinstance(case.truth, torch.Tensor):
        raise ValueError("expected a case of columns")
    about = {"run": "", "party": party, "attack": attack, **case.identity()}
    (own,) = measure_feature_attack(result, case, about)
    exact: FeatureResult = own
    if isinstance(result, Reconstruction):
        read = _as_readings(result, case.columns, case.truth[1], case.numbers)
        exact = measure_readings(read, case.columns, case.truth, case.numbers, about)
    r2 = own.value if isinstance(result, Reconstruction) else own.metrics["r2"]
    return ColumnsRead(
        **asdict(release),
        party=party,
        attack=attack,
        known=own.known,
        rows=own.rows,
        exact=exact.value or 0.0,
        baseline=exact.baseline or 0.0,
        read=int(exact.metrics["columns_read"] or 0),
        columns=len(exact.columns),
        r2=r2 or 0.0,
    )


def _as_readings(result: Reconstruction, columns: ColumnSpec, encoded: torch.Tensor, own: torch.Tensor) -> Readings:
    """Rebuilt numbers in the units of the table, and of each category the level of the largest entry, as candidates.

    The encoding is public and increasing: between values of the table it is taken for linear.
    """
    values = result.values.double()
    vectors = []
    for index in range(columns.numeric):
        order = encoded[:, index].argsort().numpy()
        known, units = encoded[:, index].double().numpy()[order], own[:, index].numpy()[order]
        vectors.append(torch.from_numpy(np.interp(values[:, index].numpy(), known, units)))
    slices = [*encoded_slices(columns).values()][columns.numeric :]
    vectors += [values[:, entries].argmax(dim=1).double() for entries in slices]
    return Readings(result.rows, torch.stack(vectors), torch.zeros(len(vectors), dtype=torch.bool))


def table(results: Iterable[ColumnsRead]) -> Iterator[str]:
    """The page's table, a line for each release."""
    attacks = [*(attack.name for attack in UNAWARE), "naming", *(f"inversion {known}" for known in KNOWN)]
    yield "| data | release | epsilon | constant guess | " + " | ".join(attacks) + " |"
    yield "|---" * (4 + len(attacks)) + "|"
    for (data, party, form, epsilon), group in groupby(
        results, key=lambda one: (one.data, one.party, one.form, one.epsilon)
    ):
        found = [*group]
        cells = [f"{one.exact:.3f} ({one.read} of {one.columns})" for one in found]
        cells[3:] = [
            f"{cell}, R² {one.r2:.3f}".replace("-", "−") for cell, one in zip(cells[3:], found[3:], strict=True)
        ]
        cells += ["as 512"] * (len(attacks) - len(cells))
        whose = data if party == "partner" else f"{data}, {party}"
        noise = "–" if epsilon is None else f"{epsilon:g}"
        yield f"| {whose} | {form} | {noise} | {found[0].baseline:.3f} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print one line of JSON for each attack on each release, then a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--names", nargs="*", default=NAMES)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    results = []
    for name in arguments.names:
        write: Callable[[Path], None] = partial(write_three_tables, as_text=MADE.get(name, False))
        if name not in MADE:
            write = partial(write_tables, load(name, arguments.data).drawn(arguments.rows))
        for form, epsilon in RELEASES:
            for result in readings(name, write, STATUS if name in MADE else LABEL, form, epsilon):
                print(json.dumps(asdict(result)), flush=True)
                results.append(result)
    print(*table(results), sep="\n")


if __name__ == "__main__":
    main()
