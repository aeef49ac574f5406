"""What the label owner guesses from grades and all else that it holds, beside the ideal output."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cutlayer.attacks.feature import best_guess
from cutlayer.attacks.feature.best_guess import BestGuess
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features import _as_trained, audit_features
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.config import Job, validated
from cutlayer.data.encoded import ColumnSpec
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.report.build import build_report
from cutlayer.report.sections.features import features_section
from cutlayer.report.sections.leaks import leaks_section
from cutlayer.report.sections.scope import untried_threats
from cutlayer.results.features import FeatureResult
from cutlayer.results.run import RunKind
from cutlayer.training.comparisons import undefended_job
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from tests.cli.jobs import audit_briefly
from tests.parties.runs import KEY, PASSIVES, raw_job, tables

TELCO = PASSIVES[0]
ROWS = 900


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, RunFolder]:
    """A run of two partners that release grades, with the default audit."""
    folder = tmp_path_factory.mktemp("graded")
    bottom: dict[str, Any] = {"kind": "grade", "least_rows": 0}
    raw = raw_job(
        passives=2,
        bottom={"bank": {"kind": "auto"}, **dict.fromkeys(PASSIVES[:2], bottom)},
        top={"kind": "linear", "folds": 1},
        release="once",
        split={"test": 0.2, "validation": 0.0},
        privacy={"label_dp": {"eps": 3.0}},
        audit={"attacks": ["sent_labels"]},
    )
    for name in PASSIVES[:2]:
        fit = {"kind": "grade", "candidates": ["linear"], "folds": 2, "least_z": 0}
        raw["parties"][name] |= {"fit": fit, "privacy": {"grade_dp": {"epsilon": 8.0}}, "audit": {"every": "never"}}
    raw["parties"][TELCO]["audit"] = {}
    job = validated(Job, raw, "")
    with pytest.MonkeyPatch.context() as patched:
        audit_briefly(patched)
        patched.setitem(best_guess.FOREST_SETTINGS, "n_estimators", 20)
        given = tables(passives=2, rows=ROWS)
        return job, execute(job, folder / "run", Options(Keys(folder, KEY), tables=given), Progress())


def test_a_baseline_that_releases_in_every_step_is_read_as_a_run_without_protections(
    graded: tuple[Job, RunFolder],
) -> None:
    """Else four of its releases would be attacked, some of 400 columns: most of the time of the audit."""
    job, _ = graded
    assert not _as_trained(job, undefended_job(job)).parties[TELCO].privacy
    assert _as_trained(job, job).parties[TELCO].privacy == job.parties[TELCO].privacy
    stepped = undefended_job(job).with_parties({TELCO: {"privacy": {"dp_embedding": {}}}})
    assert _as_trained(stepped, undefended_job(job)).parties[TELCO].privacy  # whose releases are compared one by one


def of_this_run(run: RunFolder) -> list[FeatureResult]:
    return [each for each in run.audit.features if each.run == RunKind.THIS_RUN and each.party == TELCO]


def test_the_default_reads_grades_with_all_else_that_the_label_owner_holds(graded: tuple[Job, RunFolder]) -> None:
    results = of_this_run(graded[1])
    assert [(each.attack, each.metric) for each in results] == [
        ("best_guess", "r2"),
        ("best_guess", "auc"),
        ("lattice", "exact"),
    ]
    for each in results[:2]:
        assert each.value > each.other_columns + 0.03, "grades say something"
        assert each.ideal > each.other_columns, "so does the score of a model of all columns"
        assert all(column.ideal is not None for column in each.columns)
        assert each.pooled > each.pooled_without + 0.03, "they do so too where the other partner joins in"
        assert each.pooled_without != each.other_columns, "whose columns are read"
    assert (results[2].ideal, results[2].pooled) == (None, None)


def test_the_report_has_the_ideal_output_beside_columns_and_labels(graded: tuple[Job, RunFolder]) -> None:
    report = build_report(graded[1].path)
    baselines = {each.party: each for each in report.baselines}
    assert baselines[TELCO].own_columns < baselines[TELCO].ideal
    section = features_section(report)
    assert section is not None
    for shown in (section, leaks_section(report)):
        assert "Ideal output" in str(shown.blocks)
    assert "; together with all other partners " in section.answers[0].text
    assert f"inference of the columns of {PASSIVES[1]} by parties that collude" in untried_threats(report)
    assert "on the ideal output" in section.answers[0].text


def test_a_partner_alone_reads_its_grades_and_no_ideal_output(graded: tuple[Job, RunFolder]) -> None:
    job, run = graded
    alone = audit_features(job, {RunKind.THIS_RUN: run}, run, None)
    (rebuilt,) = (each for each in alone.results if each.metric == "r2" and each.party == TELCO)
    assert (rebuilt.ideal, rebuilt.pooled) == (None, None)
    assert rebuilt.value > rebuilt.baseline + 0.1


SPEC = ColumnSpec((5,), 1, ("plan",), ("age",))


def guessed(own: bool, seed: int = 0) -> dict[str, FeatureResult]:
    """A column that release and own column tell only together, and one that neither tells."""
    draw = torch.Generator().manual_seed(seed)
    release, mine, noise = (torch.randint(0, 2, (1200, 1), generator=draw) for _ in range(3))
    codes, numbers = (2 + (release ^ mine)).int(), noise.float() + 0.1 * torch.randn(1200, 1, generator=draw)
    indices = torch.arange(0, 1200, 3)
    known = Auxiliary(SPEC, indices, codes[indices], numbers[indices])
    view = FeatureView("telco", torch.arange(1200), release.float(), own=mine.float() if own else None)
    unknown = known.unknown(1200)
    knowledge = Knowledge(auxiliary_rows=known)
    case = FeatureCase("toy", view, knowledge, (codes[unknown], numbers[unknown]))
    results = measure_feature_attack(
        BestGuess()(view, knowledge), case, {"run": "", "party": "telco", "attack": "best_guess"}
    )
    return {each.metric: each for each in results}


def test_release_and_own_columns_are_read_together() -> None:
    both, alone = guessed(own=True), guessed(own=False)
    values = {column.column: column.value for column in both["auc"].columns}
    assert values["plan"] > 0.99
    assert values["age"] < 0.6, "nothing is read where nothing is told"
    assert {column.column: column.value for column in both["r2"].columns}["plan"] > 0.95
    assert max(column.value for column in alone["auc"].columns) < 0.6
