"""What `check` warns of besides columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pytest

from cutlayer.config import Job
from cutlayer.data.profile import ColumnProfile
from cutlayer.jobs.cautions import column_cautions, drawn_labels_worth, job_cautions, label_range_cautions
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.preflight import check_own_part
from cutlayer.training.run_ledger import ledger_of
from tests.parties.runs import ACTIVE, PASSIVES, make_job, raw_job


def label(distinct: int, positives: int = 3000) -> ColumnProfile:
    classes = {"0": 6000 - positives, "1": positives} if distinct == 2 else {}
    about: dict[str, Any] = {"role": "label", "kind": "category", "type": "int64"}
    return ColumnProfile(party=ACTIVE, name="y", distinct=distinct, missing=0, classes=classes, **about)


def cautions(
    job: Job,
    common: int = 4000,
    training: int = 3200,
    distinct: int = 2,
    positives: int = 3000,
    tested: int = 400,
) -> list[str]:
    rows = {ACTIVE: 6000, PASSIVES[0]: 4200}
    columns = (label(distinct, positives),)
    drawn = drawn_labels_worth(job, dict.fromkeys(job.parties, training), [*columns[0].classes.values()], columns)
    return list(job_cautions(job, rows, common, training, tested, columns, ledger_of(job), drawn))


def followed(rows: int, every: str = "epoch") -> Job:
    raw = raw_job()
    raw["parties"][ACTIVE]["audit"] = {"followed": rows, "every": every}
    return Job.model_validate(raw)


def guarded(**privacy: Any) -> Job:
    raw = raw_job()
    raw["parties"][ACTIVE]["privacy"] = privacy
    return Job.model_validate(raw)


def test_a_sound_job_has_none() -> None:
    assert not cautions(make_job())
    assert not cautions(guarded(label_dp={"eps": 1.0}))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (cautions(make_job(), common=30), "only 30 of the 4,200 rows"),
        (cautions(make_job("regression")), "write task: binary"),
        (cautions(make_job(), training=400), "400 training rows are few"),
        (cautions(guarded(label_dp={"eps": 100.0})), "epsilon of 100 hardly limits"),
    ],
)
def test_what_is_odd_is_said_once(found: list[str], words: str) -> None:
    (line,) = found
    assert words in line


@pytest.mark.parametrize(
    ("positives", "training", "words"),
    [
        (702, 40_000, "about 958 of the 8,192 followed rows have the rarer label"),  # the share of Bank
        (702, 40_000, "about 0.53 where nothing leaks; followed: 14000 brings this to about 0.52"),
        (120, 30_000, "about 0.56 where nothing leaks; followed: 30000 brings this to about 0.53"),
    ],
)
def test_few_positives_among_the_followed_rows(positives: int, training: int, words: str) -> None:
    (line,) = cautions(followed(8192), training=training, positives=positives, tested=4000)
    assert line.startswith(f"parties.{ACTIVE}.audit.followed: ")
    assert words in line


def test_few_test_rows_of_the_rarer_class() -> None:
    (line,) = cautions(make_job(), positives=160, tested=279)
    assert line.startswith("train.split: about 7 of the 279 test rows have the rarer label")
    assert "0.21 to either side" in line  # twice sqrt((1 / 7.44 + 1 / 271.56) / 12)
    assert not cautions(make_job(), positives=160, tested=1200)


def test_followed_rows_that_suffice_or_cannot_be_more() -> None:
    assert not cautions(followed(8192), training=40_000, positives=1440)  # the share of Adult
    assert not cautions(followed(8192), training=8000, positives=120, tested=4000)
    assert not cautions(followed(8192, "never"), training=40_000, positives=120, tested=4000)
    assert not cautions(followed(8192), training=40_000, positives=0)


def test_a_regression_of_many_values_is_one() -> None:
    assert not cautions(make_job("regression"), distinct=900)


@pytest.mark.parametrize(
    ("ends", "span", "said"),
    [
        ((0.0, 1e12), [0, 200], "from 0 to 1e+12; those beyond 0 to 200 are drawn as its ends"),
        ((-1.0, 10.0), [0, 200], "from -1 to 10"),
        ((0.0, 200.0), [0, 200], ""),
        ((0.0, 1e12), None, ""),
    ],
)
def test_labels_beyond_the_range_in_which_they_are_drawn(ends: tuple[float, float], span: Any, said: str) -> None:
    job = make_job("regression")
    privacy = {"label_dp": {"eps": 2.0, **({} if span is None else {"range": span})}}
    parties = {**job.parties, ACTIVE: job.parties[ACTIVE].model_copy(update={"privacy": privacy})}
    of_label = label(900).model_copy(update={"ends": ends})
    found = [*label_range_cautions(job.model_copy(update={"parties": parties}), (of_label,))]
    assert len(found) == bool(said)
    assert not said or said in found[0]


def test_a_delta_above_one_in_all_rows() -> None:
    raw = raw_job()
    noise = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 20.0}, "budget": {"epsilon": 9.0, "delta": 1e-3}}
    raw["parties"][PASSIVES[0]]["privacy"] = noise
    job = Job.model_validate(raw)
    assert any("delta 0.001 is above 1 / 3,200" in line for line in cautions(job))
    assert not any("delta" in line for line in cautions(job, training=900))


def test_rare_categories_are_odd_where_the_model_is_not_made_for_them(tmp_path: Path) -> None:
    ids = [f"c{row}" for row in range(600)]
    tables = {
        ACTIVE: {"label": [row * 7 % 3 % 2 for row in range(600)]},
        PASSIVES[0]: {"shop": [f"s{i}" for i in range(200)] * 3},
    }
    raw = raw_job(active_features=False)
    for party, columns in tables.items():
        csv.write_csv(pa.table({"id": ids, **columns}), tmp_path / f"{party}.csv")
        raw["parties"][party]["table"] = str(tmp_path / f"{party}.csv")
    for kind, used, warned in (("auto", "tabular", False), ("mlp", "mlp", True)):
        raw["model"]["bottom"] = {"kind": kind, "hidden": [8, 4]}
        result = forecast(Job.model_validate(raw))
        assert [party.bottom for party in result.parties] == [None, used]
        (notes,) = [column.notes for column in result.columns if column.name == "shop"]
        assert (
            any("too rare to learn from; set categories.min_count, such as 5; where" in note for note in notes)
            == warned
        )


def graded(passives: int = 1) -> Job:
    names = PASSIVES[:passives]
    raw = raw_job(
        passives=passives,
        bottom={ACTIVE: {"kind": "auto"}, **{name: {"kind": "grade"} for name in names}},
        top={"kind": "linear"},
        release="once",
        privacy={"label_dp": {"eps": 0.5}},
    )
    for name in names:
        raw["parties"][name] |= {"fit": {"kind": "grade"}, "privacy": {"grade_dp": {"epsilon": 8.0}}}
    return Job.model_validate(raw)


def test_a_party_alone_is_warned_of_labels_beyond_its_range(tmp_path: Path) -> None:
    columns = {"id": [f"c{row}" for row in range(600)], "label": [row / 2 for row in range(600)]}
    csv.write_csv(pa.table({**columns, "own": [row % 7 for row in range(600)]}), tmp_path / "bank.csv")
    raw = graded().model_dump(mode="json", exclude_unset=True)
    raw["task"] = "regression"
    raw["parties"][ACTIVE] |= {"table": str(tmp_path / "bank.csv"), "id": "id", "label": "label", "audit": {}}
    for high, warned in ((200, True), (300, False)):
        raw["parties"][ACTIVE]["privacy"] = {"label_dp": {"eps": 2.0, "range": [0, high]}}
        checks = check_own_part(Job.model_validate(raw), ACTIVE)
        assert not [check.problem for check in checks if check.problem]
        said = [check for check in checks if check.name == f"parties.{ACTIVE}.privacy.label_dp.range"]
        assert [(check.caution, "from 0 to 299.5" in check.result) for check in said] == [(True, True)] * warned


@pytest.mark.parametrize(
    ("names", "fit", "epsilon", "said"),
    [
        (
            ["a", "b"],
            {},
            8.0,
            "a or b alone, a grade is nearly that column, and the default limit then has rows",
        ),
        (
            ["a"],
            {},
            3.0,
            "follow a alone, a grade is nearly that column, and the default limit then has rows",
        ),
        (["a", "b"], {"least_epsilon": 3.0}, 8.0, "and the default limit refuses it once labels were sent"),
        (["a", "b"], {}, 2.0, ""),
        (["a", "b", "c"], {}, 8.0, ""),
        (["a", "b"], {"limits": {"other": 1}}, 8.0, ""),
    ],
)
def test_few_columns_may_be_a_grade_of_one(names: list[str], fit: Any, epsilon: float, said: str) -> None:
    """All rows are then drawn at 2, or refused once labels were sent: who has two columns learns of it before."""
    raw = raw_job(passives=1, privacy={"label_dp": {"eps": 1.0}})
    passive = PASSIVES[0]
    raw["parties"][passive] |= {"fit": {"kind": "grade", **fit}, "privacy": {"grade_dp": {"epsilon": epsilon}}}
    raw["model"]["bottom"] = {ACTIVE: {"kind": "auto"}, passive: {"kind": "grade"}}
    raw["model"]["top"], raw["train"] = {"kind": "auto"}, {"release": "once", "seed": 0}
    columns = tuple(
        ColumnProfile(party=passive, name=name, role="feature", kind="number", type="double", distinct=9, missing=0)
        for name in names
    )
    found = [line for line in column_cautions(Job.model_validate(raw), columns) if "fit.limits" in line]
    assert [said in line for line in found] == [True] * bool(said)


def test_drawn_labels_are_worth_what_the_rows_of_a_partner_are() -> None:
    """A partner is sent the labels of its own rows: with few of them the run is refused, whatever the others have."""
    rows = {ACTIVE: 60_000, PASSIVES[0]: 60_000, PASSIVES[1]: 3200}
    sentence, few = drawn_labels_worth(graded(2), rows, [3000, 3000], ())
    assert f"are worth 192 rows to {PASSIVES[1]}, and more to the others, which costs" in sentence
    assert few
    sentence, few = drawn_labels_worth(graded(2), dict.fromkeys(rows, 60_000), [3000, 3000], ())
    assert f"rows to {PASSIVES[0]}, {PASSIVES[1]}, which costs" in sentence
    assert not few


def test_what_few_drawn_labels_cost_is_stated_of_strong_and_of_weak_columns() -> None:
    job = graded()
    (drawn,) = [caution for caution in cautions(job) if "label_dp.eps" in caution]
    assert f"worth 192 rows to {PASSIVES[0]}, which costs" in drawn
    assert "0.037 of an AUC of 0.8, 0.100 of one of 0.6; eps: 1 is worth more" in drawn
    assert not [caution for caution in cautions(job, training=60_000) if "label_dp.eps" in caution]


def test_a_partner_alone_is_told_what_its_grades_reveal_and_what_no_epsilon_covers(tmp_path: Path) -> None:
    """As the check of all parties in one process tells it: the bound, the bits of refusals, and who steers grades."""
    name = PASSIVES[0]
    columns = {"id": range(600), "a": [row * 37 % 101 for row in range(600)], "b": [row % 97 for row in range(600)]}
    csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    raw = graded().model_dump(mode="json", exclude_unset=True)
    raw["parties"][name] |= {"table": str(tmp_path / "t.csv"), "id": "id"}
    said = {check.name: check.result for check in check_own_part(Job.model_validate(raw), name)}
    assert said["guarantee"].endswith("cannot be distinguished better than AUC 0.999665")
    assert "which it is tells 2.6 bits in all" in said["refusal"]
    assert f"{ACTIVE} chooses by its labels what grades are of" in said[f"columns of {name}"]
