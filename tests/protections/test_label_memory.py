"""Corrected labels: without a memory every difference between two trainings proves one; with it none does."""

import math
import shutil
import stat
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from cutlayer.errors import CheckpointError, DataError, RunFolderError
from cutlayer.problem.task import Task
from cutlayer.protections import build
from cutlayer.protections.contract.base import Context
from cutlayer.protections.label_memory import memory as label_memory
from cutlayer.protections.label_memory.memory import Drawn, LabelMemory
from cutlayer.storage.durable import locked
from tests.protections.setup import KEY, context

ROWS, EPS = 20_000, 1.0
DRAWN = Drawn("default", EPS, 2)


def rows(classes=2, count=ROWS, seed=0):
    """Ids, labels, and the same labels with 5 % of them corrected to class 1."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 256, (count, 16), generator=draw, dtype=torch.uint8)
    y = torch.randint(0, classes, (count,), generator=draw)
    changed = (torch.rand(count, generator=draw) < 0.05) & (y != 1)
    return ids, y, torch.where(changed, 1, y), changed


def memory(folder, run, secret=KEY):
    """The memory as one run sees it."""
    return LabelMemory(Path(folder) / "bank.key.labels", Path(folder) / run / "label_draws.json", secret)


def train(folder, run, y, ids, choice="refuse", classes=2, eps=EPS, remembers=True):
    """The labels that a training draws, and the protection."""
    built = build("label_dp", {"eps": eps, "changed_labels": choice}, "privacy")
    found = replace(context(classes), label_memory=memory(folder, run) if remembers else None)
    built.setup(found)
    return built.labels(y, ids), built


def precision(first, second, changed):
    """Of the rows whose draws differ, the share that really changed."""
    differs = first != second
    return float(changed[differs].double().mean()) if differs.any() else math.nan


def test_without_a_memory_the_attack_finds_changed_labels_with_certainty(tmp_path):
    ids, y, corrected, changed = rows()
    first, _ = train(tmp_path, "a", y, ids, remembers=False)
    second, _ = train(tmp_path, "b", corrected, ids, remembers=False)
    assert precision(first, second, changed) == 1.0
    assert int((first != second).sum()) > 0.4 * int(changed.sum())


@pytest.mark.parametrize("classes", [2, 5])
def test_a_corrected_label_is_refused_by_default(tmp_path, classes):
    ids, y, corrected, changed = rows(classes)
    train(tmp_path, "a", y, ids, classes=classes)
    wanted = (
        rf"another label in {int(changed.sum()):,} of 20,000 rows; .*'changed_labels: keep'.*'changed_labels: redraw'"
    )
    with pytest.raises(DataError, match=wanted):
        train(tmp_path, "b", corrected, ids, classes=classes)
    with pytest.raises(DataError, match=wanted):
        train(tmp_path, "c", corrected, ids, classes=classes)
    train(tmp_path, "d", y, ids, classes=classes)


@pytest.mark.parametrize("classes", [2, 5])
def test_keep_leaves_no_difference_at_all(tmp_path, classes):
    ids, y, corrected, changed = rows(classes)
    first, _ = train(tmp_path, "a", y, ids, classes=classes)
    second, kept = train(tmp_path, "b", corrected, ids, "keep", classes)
    assert torch.equal(first, second)
    assert kept.draws.endswith(" 0")
    assert kept.metrics()["old_draws_kept"] == int(changed.sum())
    with pytest.raises(DataError):
        train(tmp_path, "c", corrected, ids, classes=classes)


def test_redraw_tells_no_more_than_two_independent_draws(tmp_path):
    ids, y, corrected, changed = rows(count=200_000)
    first, _ = train(tmp_path, "a", y, ids)
    second, redrawn = train(tmp_path, "b", corrected, ids, "redraw")
    flip = 1 / (1 + math.exp(EPS))
    stays, moves, share = 2 * flip * (1 - flip), flip**2 + (1 - flip) ** 2, float(changed.double().mean())
    expected = share * moves / (share * moves + (1 - share) * stays)
    assert precision(first, second, changed) == pytest.approx(expected, abs=0.005)
    assert moves / stays <= math.exp(2 * EPS)
    assert float((first != second)[~changed].double().mean()) == pytest.approx(stays, abs=0.01)
    assert redrawn.draws.endswith(" 1")
    assert float((second == corrected).double().mean()) == pytest.approx(1 - flip, abs=0.01)


def test_redraw_draws_anew_whether_a_label_changed_or_not(tmp_path):
    """Otherwise that the draws repeat would tell that nothing changed."""
    ids, y, _, _ = rows()
    drawn = [train(tmp_path, run, y, ids, "redraw")[0] for run in "abc"]
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert float((drawn[first] != drawn[second]).double().mean()) > 0.3


def test_what_follows_a_redraw_compares_with_the_new_draws(tmp_path):
    ids, y, corrected, _ = rows()
    train(tmp_path, "a", y, ids)
    redrawn, _ = train(tmp_path, "b", corrected, ids, "redraw")
    again, _ = train(tmp_path, "c", corrected, ids)
    assert torch.equal(again, redrawn)
    with pytest.raises(DataError, match="another label in"):
        train(tmp_path, "d", y, ids)


def test_a_run_that_is_resumed_keeps_its_generation(tmp_path):
    """Also where another run has begun a new one in the meantime; a label may not change under a run."""
    ids, y, corrected, changed = rows()
    first, _ = train(tmp_path, "a", y, ids)
    train(tmp_path, "b", corrected, ids, "redraw")
    resumed, of_run = train(tmp_path, "a", y, ids)
    assert torch.equal(resumed, first)
    assert of_run.draws.endswith(" 0")
    for choice, remedy in (("refuse", "their draws would reveal"), ("redraw", "the run began before they changed")):
        with pytest.raises(DataError, match=rf"another label in {int(changed.sum()):,} of 20,000 rows; {remedy}"):
            train(tmp_path, "a", corrected, ids, choice)
    assert torch.equal(train(tmp_path, "a", corrected, ids, "keep")[0], first)
    assert torch.equal(train(tmp_path, "b", corrected, ids, "redraw")[0], train(tmp_path, "c", corrected, ids)[0])


def test_new_rows_are_added_and_those_that_are_away_are_remembered(tmp_path):
    ids, y, corrected, changed = rows()
    half = torch.arange(ROWS) < ROWS // 2
    train(tmp_path, "a", y[half], ids[half])
    train(tmp_path, "b", y[~half], ids[~half])
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    train(tmp_path, "c", y[order], ids[order])
    with pytest.raises(DataError, match=f"another label in {int((changed & half).sum()):,} of 10,000 rows"):
        train(tmp_path, "d", corrected[half], ids[half])


@pytest.mark.parametrize("other", [{"eps": 2.0}, {"classes": 3}])
def test_another_eps_or_number_of_classes_has_draws_and_a_memory_of_its_own(tmp_path, other):
    ids, y, corrected, changed = rows()
    first, _ = train(tmp_path, "a", y, ids)
    second, _ = train(tmp_path, "b", corrected, ids, **other)
    assert precision(first, second, changed) < 0.2


def test_a_row_is_forgotten_in_every_memory_and_not_in_that_of_the_present_settings_alone(tmp_path):
    """With the secret, a memory tells the label of each row that it has, whatever is drawn now."""
    ids, y, _, _ = rows(count=50)
    for run, (eps, classes) in enumerate([(1.0, 2), (2.0, 2), (1.0, 3)]):
        train(tmp_path, str(run), y, ids, eps=eps, classes=classes)
    memory(tmp_path, "any").forget(ids[:3])
    for run, (eps, classes) in enumerate([(1.0, 2), (2.0, 2), (1.0, 3)]):
        kept = load_file(next((tmp_path / "bank.key.labels").glob(f"{which(eps, classes)}-0.safetensors")))
        assert len(kept["ids"]) == 47
        changed = torch.cat([1 - y[:3], y[3:]])
        train(tmp_path, f"later {run}", changed, ids, eps=eps, classes=classes)  # as if never drawn


def test_a_memory_that_is_of_another_label_than_its_name_says_is_refused(tmp_path, monkeypatch):
    """By what it states it would be searched for other words, and keep the rows that are to be forgotten."""
    ids, y, _, _ = rows(count=50)
    with monkeypatch.context() as another:
        another.setattr(label_memory, "astuple", lambda of: ("other", of.eps, of.classes))
        train(tmp_path, "a", y, ids)
    with pytest.raises(CheckpointError, match=r"-0\.safetensors is damaged"):
        memory(tmp_path, "any").forget(ids[:3])


def which(eps, classes):
    return memory("", "")._which(Drawn(context(classes).label_column, eps, classes))


def test_another_label_column_has_a_memory_and_draws_of_its_own(tmp_path):
    ids, y, corrected, _ = rows(count=500)
    first = memory(tmp_path, "a").recall(y, ids, DRAWN, "refuse")
    other = memory(tmp_path, "b").recall(corrected, ids, replace(DRAWN, column="late"), "refuse")
    assert torch.equal(other.codes, corrected)
    assert (other.old_draws, other.which != first.which, other.draws != first.draws) == (0, True, True)
    assert (
        memory(tmp_path, "c").latest(DRAWN, "refuse")
        == first.draws
        != memory(tmp_path, "c").latest(replace(DRAWN, column="late"), "refuse")
    )


def classes_of(*names):
    """What a training on labels of these names has."""
    return replace(context(len(names)), task=Task("binary" if len(names) == 2 else "multiclass", names))


def trained_on(folder, run, y, ids, choice, *names):
    """The labels that a training on classes of these names draws."""
    built = build("label_dp", {"eps": EPS, "changed_labels": choice}, "privacy")
    built.setup(replace(classes_of(*names), label_memory=memory(folder, run)))
    return built.labels(y, ids)


@pytest.mark.parametrize("choice", ["refuse", "keep"])
def test_renamed_classes_whose_order_changes_are_refused_and_not_kept_as_other_classes(tmp_path, choice):
    """Codes follow the order of the names: an old code kept under new names would be the opposite label."""
    ids, y, _, _ = rows(count=500)
    first = trained_on(tmp_path, "a", y, ids, choice, "leaves", "stays")
    wanted = r"'default' by the names that they were drawn under, got 'active', 'quit'; .*rename them back.*redraw"
    with pytest.raises(DataError, match=wanted):
        trained_on(tmp_path, "b", 1 - y, ids, choice, "active", "quit")
    with pytest.raises(DataError, match="rename them back"):  # the other one is the positive class now
        trained_on(tmp_path, "d", 1 - y, ids, choice, "stays", "leaves")
    assert not torch.equal(first, trained_on(tmp_path, "c", 1 - y, ids, "redraw", "active", "quit"))
    assert torch.equal(first, trained_on(tmp_path, "a", y, ids, choice, "leaves", "stays")), "the old run goes on"


def test_renamed_classes_in_the_same_order_repeat_their_draws(tmp_path):
    ids, y, corrected, _ = rows(count=500)
    first = trained_on(tmp_path, "a", y, ids, "refuse", "leaves", "stays")
    assert torch.equal(first, trained_on(tmp_path, "b", y, ids, "refuse", "left", "remained"))
    assert torch.equal(first, trained_on(tmp_path, "c", corrected, ids, "keep", "left", "remained"))
    with pytest.raises(DataError, match="rename them back"):
        trained_on(tmp_path, "d", corrected, ids, "keep", "leaves", "stays")


def test_one_class_less_and_another_more_is_refused(tmp_path):
    ids, y, _, _ = rows(3, count=500)
    trained_on(tmp_path, "a", y, ids, "keep", "a", "b", "c")
    later = y > 0  # no row of a is left, and some are of d: b is coded 0 now, and c 1
    with pytest.raises(DataError, match="rename them back"):
        trained_on(tmp_path, "b", y[later] - 1, ids[later], "keep", "b", "c", "d")


def test_the_file_tells_nothing_without_the_secret(tmp_path):
    ids, y, _, _ = rows(count=500)
    train(tmp_path, "a", y, ids)
    folder = tmp_path / "bank.key.labels"
    (path,) = folder.glob("*.safetensors")
    content = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(content) < 500 * 16 + 400
    assert not any(bytes(digest[:4].tolist()) in content for digest in ids)
    other = bytes(range(1, 33))
    found = memory(tmp_path, "b", other).recall(y, ids, DRAWN, "refuse")
    assert torch.equal(found.codes, y)
    assert len(list(folder.glob("*.safetensors"))) == 2, "another secret finds no memory of its own"


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_memory_is_refused(tmp_path, damage):
    ids, y, corrected, _ = rows(count=500)
    train(tmp_path, "a", y, ids)
    (path,) = (tmp_path / "bank.key.labels").glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"flipped": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
    with pytest.raises(CheckpointError, match="is damaged or of another secret; restore it from a backup"):
        train(tmp_path, "b", corrected, ids)


def test_a_memory_under_another_name_is_damaged(tmp_path):
    """The name is part of the draws: one that was changed would draw every row again, and cost nothing twice."""
    ids, y, _, _ = rows(count=50)
    train(tmp_path, "a", y, ids)
    (path,) = (tmp_path / "bank.key.labels").glob("*.safetensors")
    with safe_open(path, framework="numpy") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in ("ids", "labels")}
    save_file(tensors, path, header | {"memory": "00" * 8})
    with pytest.raises(CheckpointError, match="is damaged or of another secret"):
        train(tmp_path, "b", y, ids)


def test_a_memory_that_was_lost_shares_no_draws_with_the_one_begun_again(tmp_path):
    """Labels may have changed in between: the ledger must add the two up."""
    ids, y, _, _ = rows(count=500)
    _, first = train(tmp_path, "a", y, ids)
    _, again = train(tmp_path, "b", y, ids)
    assert first.draws == again.draws
    (path,) = (tmp_path / "bank.key.labels").glob("*.safetensors")
    path.unlink()
    _, other = train(tmp_path, "c", y, ids)
    assert other.draws != first.draws


def test_a_resume_without_the_memory_is_refused(tmp_path):
    ids, y, _, _ = rows(count=500)
    train(tmp_path, "a", y, ids)
    (path,) = (tmp_path / "bank.key.labels").glob("*.safetensors")
    path.unlink()
    with pytest.raises(CheckpointError, match="expected the label memory"):
        train(tmp_path, "a", y, ids)


def test_a_memory_that_was_lost_reveals_no_corrected_label(tmp_path):
    """The secret is still there, so that draws under it alone would repeat wherever a label did not change."""
    ids, y, corrected, changed = rows()
    first, _ = train(tmp_path, "a", y, ids)
    shutil.rmtree(tmp_path / "bank.key.labels")
    second, _ = train(tmp_path, "b", corrected, ids)
    assert precision(first, second, changed) < 0.1


def test_an_older_copy_of_the_memory_brings_no_generation_back(tmp_path):
    ids, y, corrected, changed = rows()
    train(tmp_path, "a", y, ids)
    shutil.copytree(tmp_path / "bank.key.labels", tmp_path / "backup")
    first, _ = train(tmp_path, "b", y, ids, "redraw")
    shutil.rmtree(tmp_path / "bank.key.labels")
    shutil.copytree(tmp_path / "backup", tmp_path / "bank.key.labels")
    with pytest.raises(CheckpointError, match="expected the label memory"):
        train(tmp_path, "b", y, ids, "redraw")
    second, _ = train(tmp_path, "c", corrected, ids, "redraw")
    assert precision(first, second, changed) < 0.1
    with pytest.raises(CheckpointError, match="that the run was begun with"):
        train(tmp_path, "b", y, ids, "redraw")


@pytest.mark.parametrize("released", [True, False])
def test_a_training_waits_while_another_compares_its_labels_and_not_for_ever(tmp_path, monkeypatch, released):
    ids, y, *_ = rows(count=50)
    (tmp_path / "bank.key.labels").mkdir()
    waited, seconds = [], count(step=25)
    with ExitStack() as other:
        other.enter_context(locked(tmp_path / "bank.key.labels" / "lock", "another training"))

        def sleep(pause):
            waited.append(pause)
            if released:
                other.close()

        monkeypatch.setattr(label_memory, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=sleep))
        if released:
            train(tmp_path, "a", y, ids)
        else:
            with pytest.raises(RunFolderError):
                train(tmp_path, "a", y, ids)
    assert len(waited) == (1 if released else 2)
    assert all(0 < pause < 1 for pause in waited)


@pytest.mark.parametrize(("options", "unfinished"), [({}, 1), ({"simulated": True}, 0)])
def test_a_generation_that_did_not_end_counts_unless_nothing_of_it_leaves_the_process(tmp_path, options, unfinished):
    ids, y, _, _ = rows(count=50)
    counted = []
    for run in ("a", "b"):
        one = LabelMemory(tmp_path / "bank.key.labels", tmp_path / run / "label_draws.json", KEY, **options)
        recalled = one.recall(y, ids, DRAWN, "redraw")
        one.begin(recalled)
        counted.append(recalled.unfinished)
    assert counted == [0, unfinished]


def test_every_other_generation_of_these_draws_counts_until_a_run_of_it_ends(tmp_path):
    ids, y, _, _ = rows(count=50)
    recalled = {}

    def begun(run, drawn=DRAWN, choice="redraw"):
        one = memory(tmp_path, run)
        recalled[run] = one.recall(y, ids, drawn, choice)
        one.begin(recalled[run])
        return recalled[run].unfinished

    assert [begun(run) for run in "abcd"] == [0, 1, 2, 3]
    memory(tmp_path, "b").end(recalled["b"])
    assert begun("a") == begun("c") == 2, "a resume does not count itself"
    assert begun("b") == 3, "and does not take back that a run has ended"
    assert begun("e") == 3
    assert begun("other", replace(DRAWN, eps=2.0)) == 0
    assert [begun(f"{number}") for number in range(8)] == [*range(4, 12)]
    assert recalled["7"].generation == 12
    assert begun("again", choice="refuse") == 11
    assert recalled["again"].generation == 12
    memory(tmp_path, "7").end(recalled["7"])
    assert begun("last") == 11


def test_a_context_is_of_one_epoch_unless_it_says_otherwise():
    whole = context()
    given = {name: getattr(whole, name) for name in ("party", "peers", "widths", "task", "labels", "training")}
    assert Context(**given, secret=KEY, noise=whole.noise).epochs == 1
