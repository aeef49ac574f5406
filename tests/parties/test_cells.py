"""Cells: grades of a party's columns alone, for a job in which no label leaves its owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.cautions import readable_columns
from cutlayer.jobs.check import check_job
from cutlayer.jobs.courier import label_recipients
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.models.bottom_fits import fit_bottom
from cutlayer.models.grade import GradeBottom
from cutlayer.training.run_ledger import ledger_of
from tests.models.fitted_columns import CODES, DIGESTS, GROUP, NUMBERS, bottom_of, columns
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, record, run, tables
from tests.parties.test_grades import SPLIT, kept

TELCO = PASSIVES[0]


def raw(fit: Any = None, bottom: Any = None, privacy: Any = None) -> dict[str, Any]:
    """A partner whose rows get a cell."""
    made = raw_job(
        "binary",
        bottom={ACTIVE: {"kind": "auto"}, TELCO: bottom or {"kind": "grade", "of": "columns"}},
        top={"kind": "linear", "folds": 1},
        release="once",
        split=SPLIT,
        privacy={"label_free": None} if privacy is None else privacy,
    )
    made["parties"][TELCO] |= {"fit": fit or {"kind": "cells"}, "privacy": {"grade_dp": {"epsilon": 4.0}}}
    return made


def test_no_label_crosses_and_a_byte_a_row_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, messages = validated(Job, raw(), ""), record(monkeypatch)
    check_job(job)
    assert job.is_label_free(TELCO)
    trained = run(job, tables(rows=900), tmp_path)
    kinds = {message.kind for message in messages}
    assert not kinds & {Kind.LABELS, Kind.GRADIENT}
    split = trained.active.split
    sent = [message for message in messages if message.kind is Kind.RELEASE]
    assert sum(message.nbytes for message in sent) == len(split.train) + len(split.test)
    assert len(grades_of_columns(kept(tmp_path, "released")["released"]).unique()) == 4
    carried = json.loads((tmp_path / "checkpoint" / TELCO / "carried.json").read_text())
    assert 0 < carried["bits"] < 2
    assert (
        trained.active.metrics["auc"]
        > trained.active.task.evaluate(trained.active.logits_without[TELCO,], trained.active.labels)["auc"]
    )
    assert not list((tmp_path / "checkpoint" / TELCO).glob("drawn*"))


def test_the_account_is_one_draw_of_a_cell_and_what_it_reveals_is_said() -> None:
    job = validated(Job, raw(), "")
    (total,) = (total for total in ledger_of(job).totals if total.protects == "features")
    assert (total.epsilon, total.delta) == (4.0, 0.0)
    assert "its cells say where a row lies among all its columns" in readable_columns(job, TELCO)
    graded = validated(Job, raw({"kind": "grade"}, {"kind": "grade"}, {"label_dp": {"eps": 1.0}}), "")
    assert "cells" not in readable_columns(graded, TELCO)


def test_by_courier_a_partner_with_cells_needs_no_file_of_labels() -> None:
    assert label_recipients(validated(Job, raw(), "")) == []
    graded = validated(Job, raw({"kind": "grade"}, {"kind": "grade"}, {"label_dp": {"eps": 1.0}}), "")
    assert label_recipients(graded) == [TELCO]


def test_limits_refuse_cells_before_they_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    fit = {"kind": "cells", "limits": {"other": 0.01}}
    with pytest.raises(ConfigError, match=r"grades that carry 0\.01 of an attribute of telco_\d at most"):
        run(validated(Job, raw(fit), ""), tables(rows=900), tmp_path)
    assert Kind.RELEASE not in {message.kind for message in messages}


@pytest.mark.parametrize(
    ("bottom", "fit", "said"),
    [
        ({"kind": "grade"}, {"kind": "cells"}, "with label_dp, since telco grades rows by drawn labels"),
        ({"kind": "grade", "of": "columns"}, {"kind": "grade"}, "fit: {kind: cells} with .* of: columns, got grade"),
    ],
)
def test_cells_and_grades_of_labels_are_no_mixture(bottom: Any, fit: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_job(validated(Job, raw(fit, bottom), ""))


@pytest.mark.parametrize(("grades", "missing"), [(5, False), (2, False), (4, True)])
def test_a_cell_is_that_of_the_nearest_centre(grades: int, *, missing: bool) -> None:
    numbers = NUMBERS.clone()
    numbers[::7, 1] = float("nan") if missing else 0.0
    given = columns()
    object.__setattr__(given, "gather", lambda rows: (CODES[rows], numbers[rows]))
    bottom = bottom_of("grade", grades=grades)
    assert isinstance(bottom, GradeBottom)
    (within,) = fit_bottom({"kind": "cells"}, bottom, given, "fit")
    assert 0.1 < within < 0.9
    (part,) = bottom.heads[0].parts
    standard, groups = part.inputs(CODES.long(), numbers).numpy(), part.inputs.grouped(CODES.long()).numpy()
    hot = (groups[:, :, None] == np.arange(len(part.table))).sum(axis=1)
    centres = np.concatenate([part.weights.numpy() / 2, part.table.numpy() / 2]).T
    distances = ((np.concatenate([standard, hot], axis=1)[:, None] - centres) ** 2).sum(axis=2)
    cells = bottom.grade(CODES, numbers, DIGESTS)
    assert np.array_equal(cells.numpy(), distances.argmin(axis=1))
    assert torch.equal(bottom.grade(CODES, numbers, None), cells)  # of no fold, and so of no id
    if grades == 2 and not missing:  # which are the two hidden groups
        assert max(np.mean(cells.numpy() == GROUP), np.mean(cells.numpy() != GROUP)) > 0.9


@pytest.mark.parametrize("grades", [2, 4, 16])
def test_no_cell_is_of_a_few_rows_that_are_far_from_all_others(grades: int) -> None:
    """An income of a thousand times the others' would be a cell, and who has it is then known."""
    numbers, given = NUMBERS.clone(), columns()
    far = given.rows[:3]
    numbers[far] += 1000 * numbers.std()
    object.__setattr__(given, "gather", lambda rows: (CODES[rows], numbers[rows]))
    bottom = bottom_of("grade", grades=grades)
    assert isinstance(bottom, GradeBottom)
    fit_bottom({"kind": "cells"}, bottom, given, "fit")
    cells = bottom.grade(CODES, numbers, DIGESTS)
    sizes = torch.bincount(cells[given.rows])
    assert int(sizes[sizes > 0].min()) >= len(given.rows) / 32
    assert 1 <= bottom.grades <= grades
