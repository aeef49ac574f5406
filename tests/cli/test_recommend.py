"""`cutlayer recommend`: what it tries, keeps, checks again and prints; the trainings are replaced by stated figures."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
from types import SimpleNamespace

import pytest

from cutlayer.attacks import column_attacks
from cutlayer.config.load import load_job
from cutlayer.config.phases import Phase
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.protections import REGISTRY
from cutlayer.training.run_ledger import ledger_of
from cutlayer_sweep import measure, worker
from cutlayer_sweep.changes import with_changes
from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.recommend import candidates, halving
from cutlayer_sweep.recommend.candidates import UNDEFENDED, Candidates
from cutlayer_sweep.recommend.result import Limits, MeasuredCandidate, parse_guarantee
from cutlayer_sweep.recommend.wording import recommended_diff
from tests.models.estimator_rows import one_candidate

SEED = 1
ANY, COVERED = Limits(0.6, None, 0.01), Limits(0.6, None, 0.01, guarantee=2.0)


def name_of(job):
    privacy = job.parties["bank"].privacy
    if "label_free" in privacy:
        return f"label_free {job.model.bottom['telco']['width']}"
    return " + ".join(sorted(privacy)) or UNDEFENDED


@pytest.fixture
def stated(monkeypatch):
    """Replaces trainings: `figures(name, seed)` gives utility and leak, `None` those of `columns_by_noise`.

    The list holds every job that was trained.
    """

    def install(figures):
        ran = []

        def trained(job, folder, options, leak, progress):
            ran.append(job)
            if figures is None:
                utility, leaked, rebuilt = columns_by_noise(job)
            else:
                (utility, leaked), rebuilt = figures(name_of(job), job.train.seed), None
            bounds = {"low": None, "high": None, "leak_low": None, "leak_high": None}
            found = {"where": "telco/gradient/norm", "epoch": 1, "seconds": 1.0, "columns": 0.7, "excess": leaked - 0.7}
            found["rebuilt"] = rebuilt
            return TrialMetrics(utility=utility, test=utility, leak=leaked, **bounds, **found)

        monkeypatch.setattr(worker, "measure", trained)
        return ran

    return install


@pytest.fixture
def only(monkeypatch):
    """Leaves a search the undefended job and the named candidates: to make thirty jobs takes most of its time."""

    def limit(*names):
        proposed = Candidates._proposed
        kept = {UNDEFENDED, *names}
        monkeypatch.setattr(Candidates, "_proposed", lambda self: (each for each in proposed(self) if each[0] in kept))

    return limit


FEW = ("label_dp 0.5", "label_dp 1", "label_dp 2", "max_norm", "marvell 1", "label_free 32")


def plain(name, seed):
    """Label DP costs little and hides much, everything else hides nothing."""
    return (0.9, 1.0) if name == UNDEFENDED else (0.895, 0.58) if name == "label_dp" else (0.8, 0.9)


@pytest.mark.parametrize("verb", ["recommend", "sweep"])
def test_folders_are_their_owner_s_alone_whatever_the_umask(place, stated, only, verb):
    """`recommended.yaml` has the private settings of all parties."""
    stated(plain)
    only("label_dp 0.5")
    options = ["--max-leak", "0.6"] if verb == "recommend" else ["--vary", "train.optimizer.lr=0.001,0.01"]
    before = os.umask(0)
    try:
        assert place.call(verb, place.file, *options, "--json").code == 0
    finally:
        os.umask(before)
    runs = place.folder / "runs"
    folders = [path for path in (runs, *runs.rglob("*")) if path.is_dir()]
    assert len(folders) > 1
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_the_best_of_the_last_rung_is_recommended_with_its_diff(place, stated):
    place.change({"train.epochs": 9, "parties.bank.privacy": {"max_norm": None}})
    ran = stated(plain)
    result = place.call("recommend", place.file, "--max-leak", "0.6", "--json").document()
    assert (result["chosen"], result["best"]) == ("label_dp 0.5", "label_dp 0.5")
    assert result["verdict"].startswith("Recommended for leak 0.6, loss 0.01: label_dp 0.5, with leak 0.580 ± 0.000")
    (checked,) = result["checked"]
    assert (checked["seeds"], checked["reached"]) == ([2, 3, 4, 5, 6], True)
    assert checked["loss"]["value"] == pytest.approx(0.005)
    lengths = [job.train.epochs for job in ran]
    assert lengths == sorted(lengths)
    assert set(lengths) == {3, 9}
    assert lengths.count(9) < lengths.count(3) / 2 + 10, "few candidates are trained in full"
    assert result["trainings"] == len(ran)
    assert result["epochs"] == sum(lengths)
    changed = [line for line in result["diff"].splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert changed[0] == "-    privacy: {max_norm: null}"
    assert [line[1:].strip() for line in changed[1:]] == ["privacy: {label_dp: {eps: 0.5}}"]
    with allowed(paths=[place.folder]):
        new = load_job(place.folder / "runs" / "job-recommend" / "recommended.yaml")
    check_job(new)
    assert new.parties["bank"].privacy == {"label_dp": {"eps": 0.5}}
    assert new.train.epochs == 9
    assert "epsilon 0.5" in result["statements"]["label_dp 0.5"][0]


@pytest.mark.parametrize(("spread", "within"), [(0.0, "yes"), (0.03, "the means are")])
def test_intervals_that_reach_past_the_limits_are_said(place, stated, only, spread, within):
    only("label_dp 0.5", "max_norm")
    stated(lambda name, seed: (0.9, 1.0) if name == UNDEFENDED else (0.895, 0.58 + spread * (seed % 3 - 1)))
    result = place.call("recommend", place.file, "--max-leak", "0.6")
    assert within in result.out
    assert ("the intervals reach past the limits" in " ".join(result.out.split())) == (spread > 0)


def diff_of(place, best):
    result = SimpleNamespace(best=best, chosen=best, limits=Limits(0.6, None, 0.01))
    diff = recommended_diff(result, place.file, place.folder)
    (place.folder / "recommended.yaml").unlink()
    return [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]


def test_what_the_job_states_already_is_tried_once_and_stays_as_it_is_written(place):
    place.change(
        {
            "train": {"epochs": 2, "batch_size": 64, "release": "once"},
            "parties.bank.privacy": {"label_free": None},
            "parties.telco.features": {"numbers": {"quantiles": 10}},
            "parties.telco.fit": {"kind": "sketch"},
            "model.bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 32}},
            "model.top": {"kind": "auto"},
        }
    )
    place.file.write_text(place.file.read_text().replace("privacy:", "privacy:  # of the labels\n     "))
    candidates = Candidates(place.file, COVERED)
    assert "label_free 32" not in candidates.by_name
    assert candidates.left_out["label_free 32"] == "it is the job as configured"
    assert diff_of(place, "as configured") == []
    changed = diff_of(place, "label_free 64")
    assert len(changed) == 2, changed
    assert [line.replace("32", "64")[1:] for line in changed[:1]] == [line[1:] for line in changed[1:]]


def test_luck_of_the_search_does_not_survive_fresh_seeds(place, stated, only):
    only("marvell 4", "marvell 1", "marvell 0.16", "label_dp 4", "max_norm")

    def lucky(name, seed):
        if name == "marvell":
            return (0.9, 0.52) if seed == SEED else (0.9, 0.8)
        return plain(name, seed)

    stated(lucky)
    result = place.call("recommend", place.file, "--max-leak", "0.6", "--json").document()
    assert [item["name"].split()[0] for item in result["checked"]] == ["marvell"] * 3
    assert (result["chosen"], result["best"]) == (None, "marvell 0.16")
    assert result["verdict"].startswith("Nothing reaches leak 0.6, loss 0.01; the nearest is marvell")
    assert "leak 0.800 ± 0.000" in result["verdict"]


def test_a_guarantee_that_nothing_has_is_told_from_bad_input(place, monkeypatch):
    monkeypatch.setattr(Candidates, "_proposed", lambda self: [(UNDEFENDED, []), ("same", [])])
    result = place.call("recommend", place.file, "--max-leak", "0.6", "--guarantee", "eps=1")
    assert (result.code, result.out) == (4, "")
    assert "no protection fits the job and the guarantee: same (no theorem for the labels)" in result.err


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_theorem_is_not_rejected_for_the_noise_of_a_measurement(place, stated, only, noise):
    only(*FEW)

    def noisy(name, seed):
        if name.startswith("label_free"):
            return 0.9, 0.7 + noise + 0.02 * (seed % 3)  # own columns reveal 0.7
        return 0.9, 1.0

    stated(noisy)
    result = place.call("recommend", place.file, "--max-excess", "0.02", "--json").document()
    assert result["chosen"].startswith("label_free")
    assert (result["last"][result["chosen"]]["excess"], result["checked"][0]["leak"]["value"]) == (0, 0)
    assert result["checked"][0]["leak_auc"]["value"] >= 0.7 + noise, "what was measured is shown all the same"


def test_ids_for_each_partner_are_refused_at_once(place):
    """The reference without protection is no job that they can have."""
    place.change({"parties.bank.partner_ids": {"telco": "id"}, "rows": "all", "train.release": "once"})
    result = place.call("recommend", place.file, "--max-leak", "0.6", "--max-loss", "0.1")
    assert result.code == 2
    assert "expected one id for all partners, since the job without protection" in " ".join(str(result).split())


def test_what_a_public_split_reveals_is_measured(place):
    place.change({})
    assert Candidates(place.file, ANY).by_name["label_free 32"].adds_nothing
    assert not Candidates(place.file, ANY).by_name["label_dp 1"].adds_nothing
    place.change({"train.split": {"by": "balance", "public": True}})
    candidate = Candidates(place.file, ANY).by_name["label_free 32"]
    assert (candidate.epsilon, candidate.adds_nothing) == (0, False)


def columns_by_noise(job):
    """Less is rebuilt of a release without labels and with noise; noise costs utility."""
    noise = job.parties["telco"].privacy.get("dp_embedding")
    free = "label_free" in job.parties["bank"].privacy
    epsilon = noise["epsilon"] if noise else math.inf
    rebuilt = {math.inf: 1.0, 64.0: 0.5, 16.0: 0.2}.get(epsilon, 0.05)
    return 0.9 - 0.1 * (1 - rebuilt), 0.7 if free else 1.0, rebuilt


def test_a_limit_on_columns_searches_the_protections_of_both_sides(place, stated, only):
    ran = stated(None)
    noisy = (f"label_free 32 + dp_embedding {epsilon}" for epsilon in (8, 16, 64))
    only("label_free 32", *noisy, "label_dp 1", "label_dp 1 + grade_dp 8")
    limits = ("--max-excess", "0.02", "--max-rebuilt", "0.3", "--max-loss", "0.09")
    result = place.call("recommend", place.file, *limits, "--json").document()
    assert re.fullmatch(r"label_free \w+( intervals)? \+ dp_embedding 16", result["chosen"]), result["chosen"]
    assert result["verdict"].startswith("Recommended for excess 0.02, columns rebuilt 0.3, loss 0.09: label_free")
    assert "excess 0.000 ± 0.000, columns rebuilt 0.200 ± 0.000 and AUC loss +0.080" in result["verdict"]
    assert any("the features of telco" in statement for statement in result["statements"][result["chosen"]])
    attacks = [job.parties["telco"].audit.attacks for job in ran]
    tried = {column_attacks("binary", once=once) for once in (False, True)}
    assert {*attacks} == {*tried, column_attacks("binary", once=True, graded=True)}
    front = {(result["last"][name]["leak"], result["last"][name]["rebuilt"]) for name in result["front"]}
    assert front >= {(0.7, 1.0), (0.7, 0.2)}, "three objectives"
    nothing = place.call("recommend", place.file, "--max-rebuilt", "0.01", "--max-loss", "0.09")
    assert nothing.code == 4
    assert "Nothing reaches columns rebuilt 0.01, loss 0.09; the nearest is" in " ".join(nothing.out.split())


def test_protections_of_columns_are_tried_where_columns_are_limited(place):
    place.change({"parties.telco.privacy": {"nopeek": {"alpha": 0.1}}})
    labels, both = Candidates(place.file, ANY), Candidates(place.file, Limits(None, None, 0.01, max_rebuilt=0.3))
    assert not [name for name in labels.by_name if "dp_embedding" in name or "intervals" in name]
    assert {"as configured", "label_free 8 + dp_embedding 8", "label_free 64 intervals"} <= set(both.by_name)
    assert both.job({"protection": UNDEFENDED}).parties["telco"].privacy == {}
    assert both.job({"protection": "as configured"}).parties["telco"].privacy == {"nopeek": {"alpha": 0.1}}
    intervals = both.job({"protection": "label_free 64 intervals"}).parties["telco"]
    assert (intervals.fit["numbers"], intervals.features.numbers.quantiles) == (False, 16)


def test_a_job_of_grades_is_compared_with_all_others_and_others_with_grades(place):
    """The job that `init` writes was refused, and no search tried grades."""
    limits = Limits(None, None, 0.01, max_rebuilt=0.3)
    found = Candidates(place.file, limits)
    graded = found.job({"protection": "label_dp 1 + grade_dp 8"})
    assert (graded.parties["bank"].privacy, graded.parties["telco"].privacy) == (
        {"label_dp": {"eps": 1.0}},
        {"grade_dp": {"epsilon": 8.0}},
    )
    raw = with_changes(found.of_file.raw, dict(found._proposed())["label_dp 1 + grade_dp 8"])
    raw["parties"]["telco"]["audit"] = {"attacks": ["best_guess"]}
    place.file.write_text(json.dumps(raw))
    of_grades = Candidates(place.file, limits)
    assert "label_dp 1 + grade_dp 8" not in of_grades.by_name, "it is the job as configured"
    assert {*found.by_name} - {*of_grades.by_name} == {"label_dp 1 + grade_dp 8"}
    undefended = of_grades.job({"protection": UNDEFENDED})
    assert (undefended.bottom_of("telco")["kind"], undefended.train.release) == ("auto", "every_step")
    assert not any(party.privacy for party in undefended.parties.values())
    sketch = of_grades.job({"protection": "label_free 64"})
    assert {*column_attacks("binary", once=True), "best_guess"} == {*sketch.parties["telco"].audit.attacks}
    assert Candidates(place.file, ANY).job({"protection": UNDEFENDED}).parties["telco"].privacy == {}


def test_nothing_within_reach_names_the_nearest_and_what_columns_tell(place, stated, only):
    only(*FEW)
    stated(lambda name, seed: (0.9, 1.0) if name == UNDEFENDED else (0.85, 0.75))
    result = place.call("recommend", place.file, "--max-leak", "0.6")
    assert result.code == 4, "a script can tell it from bad input and from success"
    text = " ".join(result.out.split())
    assert "Nothing reaches leak 0.6, loss 0.01; the nearest is" in text
    assert "A passive party's own columns reach 0.700 without any message: a leak of 0.6 is below that" in text
    assert "Price of this search: " in text
    assert "no ledger counts the trials together" in text


def test_the_same_command_goes_on_and_other_limits_use_what_is_there(place, stated, only):
    ran = stated(plain)
    only(*FEW)
    first = place.call("recommend", place.file, "--max-leak", "0.6", "--json").document()
    count = len(ran)
    again = place.call("recommend", place.file, "--max-leak", "0.6", "--json").document()
    assert (again, len(ran)) == (first, count)
    other = place.call("recommend", place.file, "--max-excess", "0.05", "--json").document()
    assert other["chosen"] == first["chosen"]
    assert len(ran) == count


def test_an_interrupted_search_goes_on(place, stated, only, monkeypatch):
    ran = stated(plain)
    only(*FEW)
    trained, pressed = worker.measure, []

    def interrupted(*arguments):
        if len(ran) == 4 and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return trained(*arguments)

    monkeypatch.setattr(worker, "measure", interrupted)
    assert place.call("recommend", place.file, "--max-leak", "0.6").code == 130
    result = place.call("recommend", place.file, "--max-leak", "0.6", "--json").document()
    assert result["trainings"] == len(ran)


def test_a_guarantee_admits_only_what_a_theorem_covers(place):
    place.change({"train.early_stop": {"patience": 1}, "parties.bank.privacy": {"label_dp": {"eps": 3.0}}})
    every, covered = Candidates(place.file, ANY), Candidates(place.file, COVERED)
    assert {"max_norm", "marvell 1", "label_dp 4", "as configured"} <= set(every.by_name)
    assert "label_free 32" in covered.by_name, "its job does not stop early, which depends on labels"
    assert {"max_norm", "marvell 1", "label_dp 4", "as configured"} <= set(covered.left_out)
    for name, candidate in covered.by_name.items():
        (*totals,) = ledger_of(covered.job({"protection": name})).totals
        if name != UNDEFENDED:
            assert candidate.epsilon is not None
            assert candidate.epsilon <= 2
            assert {receiver for total in totals for receiver in total.towards} == {"telco"}
            assert all(total.epsilon is not None and total.epsilon <= 2 for total in totals)


def test_a_release_without_labels_keeps_its_guarantee_where_the_training_stops_early(place):
    place.change({"train.early_stop": {"patience": 1}, "parties.bank.privacy": {"label_free": None}})
    place.change(
        {
            "train": {"epochs": 2, "batch_size": 64, "release": "once", "early_stop": {"patience": 1}},
            "parties.bank.privacy": {"label_free": None},
            "parties.telco.fit": {"kind": "sketch"},
            "model.bottom": {"bank": {"kind": "mlp", "hidden": [4]}, "telco": {"kind": "linear", "width": 8}},
        }
    )
    candidates = Candidates(place.file, COVERED)
    assert candidates.by_name["as configured"].epsilon == 0
    undefended = candidates.job({"protection": UNDEFENDED})
    assert Phase.RELEASE not in undefended.phases_of("telco")
    assert undefended.parties["bank"].privacy == {}
    assert undefended.parties["telco"].fit is None


def test_what_protects_other_things_stays(place):
    place.change(
        {"parties.bank.privacy": {"party_dropout": {"rate": 0.1}}, "parties.telco.privacy": {"nopeek": {"alpha": 0.1}}}
    )
    found = Candidates(place.file, ANY)
    job = found.job({"protection": "label_dp 1"})
    assert set(job.parties["bank"].privacy) == {"party_dropout", "label_dp"}
    assert set(job.parties["telco"].privacy) == {"nopeek"}
    assert "label_free 32" in found.left_out, "nopeek acts in training, which a single release has not"


def test_the_audit_is_the_whole_catalogue(place):
    place.change({"parties.bank.audit": {"attacks": ["norm"], "every": "never"}})
    audit = Candidates(place.file, ANY).job({"protection": UNDEFENDED}).parties["bank"].audit
    assert (audit.attacks, audit.every) == ("auto", "end")


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ([], "expected --max-leak, --max-excess or --max-rebuilt, got none of them"),
        (["--max-leak", "0.6", "--max-excess", "0.1"], "got both"),
        (["--max-rebuilt", "1"], "expected --max-rebuilt of 0 to below 1, got 1.0"),
        (["--max-leak", "0.5"], "expected --max-leak above 0.5 and at most 1, got 0.5; 0.5 is chance"),
        (["--max-excess", "0.6"], "expected --max-excess of 0 to 0.5, got 0.6"),
        (["--max-leak", "0.6", "--max-loss", "-1"], "expected --max-loss of 0 to 1, got -1.0"),
        (["--max-leak", "0.6", "--guarantee", "delta=2"], "expected --guarantee eps=NUMBER with a number above 0"),
        (["--max-leak", "0.6", "--guarantee", "eps=-2"], "expected --guarantee eps=NUMBER with a number above 0"),
        (["--max-leak", "0.6", "--seeds", "1"], "expected --seeds of 2 or more, got 1"),
        (["--max-leak", "0.6", "--out", "."], "expected a new folder or that of a recommendation at ., got "),
    ],
)
def test_bad_limits_are_refused_before_anything_runs(place, options, phrase, monkeypatch):
    monkeypatch.setattr(measure, "execute", None)
    result = place.call("recommend", place.file, *options)
    assert (result.code, result.out) == (2, "")
    assert phrase in result.error
    assert place.left() == set()


REGRESSION = {"task": "regression", "parties.bank.label": "balance"}


def test_a_regression_has_the_candidates_that_are_defined_for_values(place):
    place.change(REGRESSION)
    found = Candidates(place.file, ANY)
    names = {part for name in set(found.by_name) - {UNDEFENDED} for part in name.split(" + ")}
    defined = {name for name, protection in REGISTRY.items() if "regression" in protection.tasks}
    assert {name.split()[0] for name in names} <= defined | {"label_free"}
    assert {"iso_noise 4", "iso_noise 16", "max_norm", "label_free 64"} <= set(found.by_name)
    for name, reason in found.left_out.items():
        assert {"label_dp", "marvell"} & set(name.split()), name
        assert "on a task of kind binary or multiclass, got regression" in reason
    for name in found.by_name:
        assert found.job({"protection": name}).task == "regression"
    covered = Candidates(place.file, COVERED)
    assert {name.split()[0] for name in covered.by_name} == {UNDEFENDED, "label_free"}
    place.change({})
    assert "iso_noise 16" not in Candidates(place.file, ANY).by_name


def test_a_real_search(place, only, monkeypatch):
    """One candidate and the undefended job are really trained and attacked, by few attacks of the catalogue.

    Of classes, trials are really trained in `test_sweep`.
    """
    candidate = "label_free 32"
    monkeypatch.setattr(candidates, "column_attacks", lambda *_, **__: ("inversion",))
    one_candidate(monkeypatch)
    place.change({**REGRESSION, "parties.bank.audit.every": "end", "train.epochs": 1})
    whole = Candidates._checked

    def briefly(self, changed):
        job = whole(self, changed)
        audit = job.parties[job.active].audit.model_copy(update={"attacks": ("few_labels",)})
        return job.with_parties({job.active: {"audit": audit}})

    monkeypatch.setattr(Candidates, "_checked", briefly)
    only(candidate)
    result = place.call("recommend", place.file, "--max-excess", "0.5", "--max-loss", "1", "--seeds", "2", "--json")
    found = result.document()
    assert found.get("chosen") == candidate, found
    assert found["last"][UNDEFENDED]["loss"] == 0
    assert found["trainings"] == 6
    assert found["metric"] == "r2"
    assert all(0.5 <= item["leak"] <= 1 for item in found["last"].values())
    assert found["last"][candidate]["where"].startswith("telco/embedding/"), "the only messages"
    folder = place.folder / "runs" / "job-recommend"
    assert json.loads((folder / "recommend.json").read_text())["chosen"] == found["chosen"]
    shutil.rmtree(folder)


def figures_of(loss, leak):
    utility = 0.9 - loss
    return MeasuredCandidate(utility, utility, None, None, leak, None, None, "", 1, 1.0, 0.7, leak - 0.7, loss=loss)


def test_survivors_hold_the_front_and_the_nearest():
    draw = random.Random(0)
    for _ in range(50):
        measured = {UNDEFENDED: figures_of(0.0, 1.0)}
        for number in range(12):
            loss, leak = draw.uniform(0, 0.1), draw.uniform(0.5, 1)
            measured[f"c{number}"] = figures_of(loss, leak)
        limits = Limits(0.6, None, 0.01)
        left = halving.survivors(measured, limits)
        assert UNDEFENDED in left
        assert min(measured, key=lambda name: measured[name].leak) in left
        assert halving.sorted_by_nearness(measured, limits)[0] in left
        for name in set(measured) - set(left):
            assert any(
                measured[other].leak <= measured[name].leak and measured[other].loss <= measured[name].loss
                for other in left
            )


def test_a_guarantee_is_read():
    assert parse_guarantee("epsilon=0.5") == 0.5
    with pytest.raises(ConfigError):
        parse_guarantee("eps=inf")
