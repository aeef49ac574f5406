"""What the grades of several jobs carry together: limits hold across them, and the memory says which there were."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_mutual_info_score, roc_auc_score

from cutlayer.config import CategoriesConfig, Job, NumbersConfig, validated
from cutlayer.data.carried import Carried
from cutlayer.data.categories import FIRST_VALUE_CODE, CategoryEncoder
from cutlayer.data.encoded import Encoded
from cutlayer.data.encoding import Encoder
from cutlayer.data.ids import row_digests
from cutlayer.data.numbers import NumberEncoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError
from cutlayer.kernels.noise.randomized_response import transition_matrix
from cutlayer.kernels.noise.score_bands import Floats, channel_of_groups, draw_channel, joint_after_draws
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.parties import carried_together
from cutlayer.parties.carried import grade_information
from cutlayer.parties.carried_limits import check_limits
from cutlayer.parties.carried_together import GradedRows, with_earlier_releases
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from cutlayer.storage.tensor_file import read_tensors, write_tensors
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.interruptions import crashes_at_rename
from tests.parties.runs import ACTIVE
from tests.parties.test_grades import TELCO, kept, raw
from tests.training.test_all_runs import World

pytestmark = pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
ROWS = 3000
DRAW = np.random.default_rng(0)
A, B = DRAW.integers(2, size=ROWS), DRAW.integers(2, size=ROWS)
OWN = {"id": np.arange(ROWS), "own": DRAW.normal(size=ROWS), "one": B, "other": A ^ B}
GIVEN = {
    TELCO: pa.table({"id": np.arange(ROWS), "a": A, "b": B, "c": DRAW.normal(size=ROWS)}),
    ACTIVE: pa.table(OWN),
}


def made(label: str, limits: Any = None, **options: Any) -> Job:
    """A job of labels that are b, which the partner allows, or a xor b."""
    bottom = {"kind": "grade", "grades": 2, "least_rows": 0}
    job = raw({"candidates": ["boosting"], "limits": limits or {"b": 1.0}}, bottom=bottom, eps=4.0, **options)
    job["parties"][ACTIVE] |= {"features": {"include": ["own"]}, "label": label}
    return validated(Job, job, "")


def found_in(folder: Path) -> Carried:
    return Carried.model_validate_json((folder / "checkpoint" / TELCO / "carried.json").read_text())


def share(found: Sequence[Any], column: str) -> float:
    return float(next(each.share for each in found if each.column == column))


def expected_share(truth: Floats, graded: Sequence[GradedRows]) -> float:
    """Share of the entropy of two classes that the draws of two releases carry, by their joint distribution."""
    counts = np.zeros((graded[0].bands, graded[1].bands, 2))
    np.add.at(counts, (graded[0].grades, graded[1].grades, truth), 1 / len(truth))
    noise = [transition_matrix(8.0, each.bands).numpy() for each in graded]
    joint = np.einsum("abt,ac,bd->cdt", counts, *noise).reshape(-1, 2)
    entropies = [float(-(each * np.log2(each)).sum()) for each in (joint.sum(axis=1), joint.sum(axis=0), joint)]
    return (entropies[0] + entropies[1] - entropies[2]) / entropies[1]


@pytest.fixture(autouse=True)
def _enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_that_find_a_xor_b(monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, float], Path]:
    """Folder of a world with one job, of label b, trained once for each allowed attribute and epsilon; not to be
    changed.
    """

    @cache
    def train(allowed: str, epsilon: float) -> Path:
        world = World(tmp_path_factory.mktemp("trained"))
        world.run(made("one", {allowed: 1.0}, epsilon=epsilon), GIVEN)
        return world.folder

    return train


@pytest.fixture
def begun(trained: Callable[[str, float], Path], tmp_path: Path) -> Callable[..., World]:
    """A world in which `run-1`, the job of label b, has ended."""

    def copied(allowed: str, epsilon: float = 8.0) -> World:
        shutil.copytree(trained(allowed, epsilon), tmp_path, dirs_exist_ok=True)
        world = World(tmp_path)
        world.count = 1
        return world

    return copied


@pytest.mark.parametrize("epsilon", [8.0, 2.0])
def test_two_jobs_that_tell_together_what_neither_does_are_refused(
    begun: Callable[..., World], tmp_path: Path, epsilon: float
) -> None:
    """A label owner that sends b, and in another job a xor b: at the default limit, although neither carries a."""
    world = begun("b", epsilon)
    first = tmp_path / "run-1"
    assert share(found_in(first).attributes, "a") < 0.02
    assert not found_in(first).together
    with pytest.raises(ConfigError, match=r"an attribute of a at most with those of 1 other release.* got [01]\.[890]"):
        world.run(made("other", epsilon=epsilon), GIVEN, out="refused")
    refused = tmp_path / "refused"
    assert share(found_in(refused).attributes, "a") < 0.02
    assert not (refused / "checkpoint" / TELCO / "released.safetensors").exists()


def test_the_second_of_two_jobs_is_sent_where_the_first_one_was_not(tmp_path: Path) -> None:
    assert share(found_in(World(tmp_path).run(made("other"), GIVEN)).attributes, "a") < 0.02


def test_the_table_is_right_of_what_two_grades_tell(begun: Callable[..., World], tmp_path: Path) -> None:
    """Where the partner allows it: the share stated is what both draws tell. A budget is of both jobs.

    The share is compared with its expected value. Of 6,000 draws some 2.01 are of another grade, each with probability
    1 / (1 + e^8): more than 12 have a probability of 2e-7.
    """
    world, table, scores, others = begun("other"), PartyTable(TELCO, GIVEN[TELCO], "id"), [], 0
    second = world.run(made("other", {"other": 1.0}), GIVEN)
    for nth, folder in enumerate((tmp_path / "run-1", second)):
        drawn = grades_of_columns(kept(folder, "released")["released"]).numpy()
        ids = kept(folder, "released")["ids"].numpy()
        before, _ = GradeMemory(world.secrets / f"{TELCO}.key.grades").other_releases(
            "", JoinKeys(table.grade_digests(ids))
        )
        others += int((drawn != before[nth].grades).sum())
        order = np.argsort([digest.tobytes() for digest in ids])
        scores.append(drawn[order])
    assert others <= 12
    rows = {digest.tobytes(): row for row, digest in enumerate(row_digests(GIVEN[TELCO]["id"]))}
    truth = A[[rows[digest.tobytes()] for digest in ids]]
    aucs = [roc_auc_score(truth[order], score) for score in (*scores, scores[0] ^ scores[1])]
    assert all(abs(auc - 0.5) < 0.1 for auc in aucs[:2])
    assert aucs[2] > 0.9
    found = found_in(folder)
    assert (found.former, found.unknown) == (1, 0)
    assert share(found.attributes, "a") < 0.02
    assert share(found.together, "a") == pytest.approx(expected_share(truth, before), abs=0.001)
    privacy = {"grade_dp": {"epsilon": 8.0}, "budget": {"epsilon": 8.0, "over": "all_runs"}}
    bounded = made("one").with_parties({TELCO: {"privacy": privacy}})
    with pytest.raises(BudgetExceeded):
        world.run(bounded, GIVEN)


def test_the_same_release_is_no_second_one(tmp_path: Path) -> None:
    """A run that is begun again, after a crash or to its end, repeats its draws: nothing new is carried."""
    world, job = World(tmp_path), made("one")
    for nth in (30, 38):
        crashes_at_rename(nth, partial(world.run, job, GIVEN, out=f"{nth}"), after=False)
    for out in ("whole", "again"):
        found = found_in(world.run(job, GIVEN, out=out))
        assert (found.former, found.unknown, found.together) == (0, 0, ())
    assert len(list((world.secrets / f"{TELCO}.key.grades").glob("*.safetensors"))) == 1


def test_rows_without_an_earlier_grade_hide_nothing_of_those_that_have_it(tmp_path: Path) -> None:
    """Of an earlier job of a quarter of the rows, a of that quarter would be read: a quarter of all there is."""
    world = World(tmp_path)
    some = np.sort(np.random.default_rng(1).permutation(ROWS)[: ROWS // 4])
    world.run(made("one"), {TELCO: GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE].take(some)})
    with pytest.raises(ConfigError, match="with those of 1 other release"):
        world.run(made("other"), GIVEN)
    apart = np.setdiff1d(np.arange(ROWS), some)
    assert found_in(world.run(made("other"), {TELCO: GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE].take(apart)})).former == 0


def test_a_pilot_of_the_same_draws_forgets_nothing(begun: Callable[..., World]) -> None:
    world = begun("other")
    world.run(made("one", {"other": 1.0}), GIVEN, out="pilot", pilot=100)
    with pytest.raises(ConfigError, match=r"carry 0\.15 of an attribute of a at most with those of 1 other release"):
        world.run(made("other", {"a": 0.15, "other": 1.0}), GIVEN)


def test_many_jobs_of_some_rows_each_hide_nothing() -> None:
    """Five earlier jobs of random halves: of the rows that have the same ones there are few, of each pair many."""
    rng, rows = np.random.default_rng(0), 3000
    a, b = rng.integers(2, size=(2, rows))
    store, encoder = codes_store(a[:, None])
    halves = (np.where(rng.random(rows) < 0.5, 15 * b, -1) for _ in range(5))
    found = joined(store, encoder, GradedRows(15 * (a ^ b), 16, 8.0), *(GradedRows(each, 16, 8.0) for each in halves))
    assert found.together[0].share > 0.9
    with pytest.raises(ConfigError, match="an attribute of n0"):
        check_limits(found, {}, TELCO)


def test_no_number_of_releases_hides_the_newest() -> None:
    """70 of hardly any rows before it, which are counted as not known."""
    rng, rows = np.random.default_rng(0), 3000
    a, b = rng.integers(2, size=(2, rows))
    store, encoder = codes_store(a[:, None])
    few = GradedRows(np.where(np.arange(rows) < 19, 3, -1), 16, 8.0)
    found = joined(store, encoder, GradedRows(15 * (a ^ b), 16, 8.0), *[few] * 70, GradedRows(15 * b, 16, 8.0))
    assert (found.former, found.unknown) == (1, 70)
    assert found.together[0].share > 0.9


def test_grades_under_another_name_are_not_known(begun: Callable[..., World]) -> None:
    world = begun("b")
    renamed = made("other").model_dump_json(exclude_unset=True).replace(f'"{TELCO}"', '"telco2"')
    folder = world.run(validated(Job, json.loads(renamed), ""), {"telco2": GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE]})
    found = Carried.model_validate_json((folder / "checkpoint" / "telco2" / "carried.json").read_text())
    assert (found.former, found.unknown) == (0, 1)


@pytest.mark.parametrize("change", ["gone", "secret", "refused", "damaged", "earlier"])
def test_what_is_not_known_of_earlier_grades_is_said(begun: Callable[..., World], tmp_path: Path, change: str) -> None:
    world, limits = World(tmp_path) if change == "refused" else begun("other"), {"other": 1.0}
    if change == "refused":
        with pytest.raises(ConfigError, match="of an attribute of b at most"):
            world.run(made("one", {"b": 0.1, "other": 1.0}), GIVEN)
    memory = world.secrets / f"{TELCO}.key.grades"
    (file,) = memory.glob("*.safetensors")
    if change == "gone":
        file.unlink()
    elif change == "secret":
        (world.secrets / f"{TELCO}.key").unlink()
    elif change in ("damaged", "earlier"):
        if change == "earlier":
            tensors, header = read_tensors(file)
            header.pop("columns")
            write_tensors(file, {"rows": tensors["ids"], "grades": tensors["grades"]}, header)
        else:
            file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(CheckpointError, match="its release then counts as one whose grades are not known"):
            world.run(made("other", limits), GIVEN)
        return
    found = found_in(world.run(made("other", limits), GIVEN))
    assert (found.former, found.unknown) == {"gone": (0, 1), "secret": (1, 0), "refused": (0, 0)}[change]


def test_ids_by_another_rule_are_the_same_rows(tmp_path: Path) -> None:
    world, names = World(tmp_path), pa.array([f"Row-{row}" for row in range(ROWS)])
    for label, rule in (("one", "none"), ("other", "lower")):
        job = made(label, {"other": 1.0})
        ids = {name: job.parties[name].id.model_copy(update={"normalise": rule}) for name in (ACTIVE, TELCO)}  # type: ignore[union-attr]
        job = job.with_parties({name: {"id": each} for name, each in ids.items()})
        given = {name: table.set_column(0, "id", names) for name, table in GIVEN.items()}
        folder = world.run(job, given)
    assert found_in(folder).former == 1
    assert share(found_in(folder).together, "a") > 0.8


def codes_store(columns: Floats) -> tuple[Store, Encoder]:
    fits = [NumberEncoder.fit(f"n{at}", each.astype(float), NumbersConfig(), "") for at, each in enumerate(columns.T)]
    encoder = Encoder(encoders=tuple(fits))
    encoded = Encoded(np.zeros((len(columns), 0), np.int32), columns.astype(np.float32), None)
    return Store(encoded, encoder.columns), encoder


def joined(store: Store, encoder: Encoder, *releases: GradedRows) -> Carried:
    own = releases[0]
    found = grade_information(store, encoder, own.grades, own.epsilon, own.bands)
    return with_earlier_releases(found, store, encoder, own, releases[1:])


@pytest.mark.parametrize("epsilons", [(8.0, 2.0), (1.0, None), (3.0, 3.0, 0.5)])
def test_the_joint_channel_is_the_product_of_all(epsilons: tuple[float | None, ...]) -> None:
    """Against every path of a code through every draw, added up one by one, and against PyTorch's Kronecker product."""
    bands = (3, 4, 2)[: len(epsilons)]
    joint = np.random.default_rng(0).random((*bands, 2))
    each = [np.eye(k) if e is None else transition_matrix(e, k).numpy() for e, k in zip(epsilons, bands, strict=True)]
    slow = np.zeros_like(joint)
    for true, drawn in itertools.product(itertools.product(*map(range, bands)), repeat=2):
        slow[drawn] += joint[true] * math.prod(m[t, d] for m, t, d in zip(each, true, drawn, strict=True))
    fast = joint_after_draws(joint, [draw_channel(e, k) for e, k in zip(epsilons, bands, strict=True)])
    np.testing.assert_allclose(fast, slow, rtol=1e-12)
    whole = each[0]
    for more in each[1:]:
        whole = np.kron(whole, more)
    np.testing.assert_allclose(fast.reshape(-1, 2), whole.T @ joint.reshape(-1, 2), rtol=1e-12)
    if epsilons[0] is not None:
        wrong = joint_after_draws(joint, [draw_channel(epsilons[0], bands[0]), *(np.eye(k) for k in bands[1:])])
        assert not np.allclose(wrong, slow) or epsilons[1:] == (None,)


def test_grades_in_groups_are_drawn_exactly_as_their_groups() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2])
    lumped, whole = channel_of_groups(2.0, groups), draw_channel(2.0, 6)
    np.testing.assert_allclose(lumped.sum(axis=1), 1.0)
    for band, group in enumerate(groups):  # whatever band of the group a row has
        np.testing.assert_allclose([whole[band, groups == to].sum() for to in range(3)], lumped[group])


def test_what_two_grades_carry_is_the_information_of_their_draws() -> None:
    """By as many draws of both, with an independent implementation of the adjustment for chance."""
    rng = np.random.default_rng(0)
    rows, bands = 60_000, 4
    grades = rng.integers(bands, size=(2, rows))
    truth = (rng.random(rows) < np.array([0.1, 0.4, 0.6, 0.9])[(grades[0] * grades[1]) % bands]).astype(int)
    store, encoder = codes_store(truth[:, None])
    found = joined(store, encoder, *(GradedRows(each, bands, 3.0) for each in grades))
    noise = draw_channel(3.0, bands).cumsum(axis=1)
    codes = np.array([1, bands]) @ (rng.random((2, rows, 1)) > noise[grades]).sum(axis=2)
    assert found.together[0].share == pytest.approx(
        adjusted_mutual_info_score(truth, codes, average_method="min"), rel=0.06
    )
    assert found.together[0].share > 2 * found.attributes[0].share


@pytest.mark.parametrize("rows", [300, 30_000])
def test_chance_carries_nothing_of_many_codes(rows: int) -> None:
    """Three grades that have nothing to do with 12 attributes, rare and frequent: without the
    adjustment, codes of 8 rows each carry a third of all of them."""
    rng = np.random.default_rng(rows)
    columns = (rng.random((rows, 12)) < np.geomspace(0.02, 0.5, 12)).astype(float)
    store, encoder = codes_store(columns)
    releases = [GradedRows(rng.integers(16, size=rows), 16, 8.0) for _ in range(3)]
    found = joined(store, encoder, *releases)
    assert found.former == 2
    assert len(found.together) > 4
    largest = {300: 0.2, 30_000: 0.05}[rows]
    assert max(each.share for each in found.together) < largest
    check_limits(found.model_copy(update={"attributes": ()}), {}, TELCO)


@pytest.mark.parametrize("others", [1, 6])
def test_further_grades_hide_nothing_of_what_two_carry(others: int) -> None:
    """Grades of noise beside them make all codes coarser: each two are looked at besides."""
    rng, rows = np.random.default_rng(others), 9000
    a, b = (rng.random(rows) < 0.5).astype(int), (rng.random(rows) < 0.13).astype(int)
    store, encoder = codes_store(np.stack([a, rng.normal(size=rows)], axis=1))
    more = [GradedRows(rng.integers(16, size=rows), 16, 8.0) for _ in range(others)]
    two = GradedRows(15 * (a ^ b), 16, 8.0), GradedRows(3 * b + 12 * (rng.random(rows) < 0.001), 16, 8.0)
    found = joined(store, encoder, two[0], *more, two[1])
    assert found.former == 1 + others
    with pytest.raises(ConfigError, match=f"of n0 at most with those of {1 + others} other"):
        check_limits(found, {}, TELCO)


def test_most_is_stated_of_what_is_drawn() -> None:
    """Not of what the noisier release would tell exactly: which side of 0 a number is on."""
    rng, rows = np.random.default_rng(0), 4000
    number = rng.normal(size=rows)
    store, encoder = codes_store(number[:, None])
    far = (np.abs(number) > 1).astype(int)
    told = np.where(rng.random(rows) < 0.97, far, 1 - far)
    (found,) = joined(store, encoder, GradedRows((number > 0).astype(int), 2, 0.5), GradedRows(told, 2, 8.0)).together
    assert found.attribute == "n0 in a set of intervals"
    assert 0.3 < found.share < 0.9 < (found.undrawn or 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_no_attribute_that_is_passed_over_carries_more(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Against a search in which each is computed alone, which has the same bits."""
    rng, rows = np.random.default_rng(seed), 1500
    columns = np.stack([rng.normal(size=rows), rng.integers(9, size=rows), rng.random(rows) < 0.05], axis=1)
    store, encoder = codes_store(columns.astype(float))
    scores = columns @ rng.normal(size=(3, 3)) + rng.normal(size=(rows, 3))
    grades = [np.searchsorted(np.quantile(each, [0.2, 0.5, 0.8]), each) for each in scores.T]
    releases = [GradedRows(each, 4, epsilon) for each, epsilon in zip(grades, (3.0, None, 1.0), strict=True)]
    found = joined(store, encoder, *releases)
    monkeypatch.setattr(carried_together, "_ROUNDING", math.inf)
    assert joined(store, encoder, *releases) == found


def test_a_parity_of_four_grades_is_seen() -> None:
    rng, rows = np.random.default_rng(4), 4000
    bits = rng.integers(2, size=(4, rows))
    store, encoder = codes_store(np.bitwise_xor.reduce(bits)[:, None])
    found = joined(store, encoder, *(GradedRows(15 * each, 16, 8.0) for each in bits))
    assert found.together[0].share > 0.95
    assert joined(store, encoder, *(GradedRows(15 * each, 16, 8.0) for each in bits[:3])).together[0].share < 0.02


def test_a_set_of_rare_values_is_told_by_two_grades_together() -> None:
    """No value of 400 has the rows of an attribute, and no grade alone has more of the set than of others."""
    rng, rows = np.random.default_rng(0), 9000
    codes = rng.integers(400, size=rows)
    inside, b = codes % 7 < 3, rng.integers(2, size=rows)
    category = CategoryEncoder.from_vocabulary("icd", [f"C{code}" for code in range(400)], CategoriesConfig())
    encoded = Encoded((codes[:, None] + FIRST_VALUE_CODE).astype(np.int32), np.zeros((rows, 0), np.float32), None)
    encoder = Encoder(encoders=(category,))
    store = Store(encoded, encoder.columns)
    releases = [GradedRows(8 * each + rng.integers(8, size=rows), 16, 8.0) for each in (inside ^ b, b)]
    found = joined(store, encoder, *releases)
    assert found.attributes[0].share < 0.1
    assert found.together[0].attribute == "icd in a set of its values"
    assert found.together[0].share > 0.7
    alike = GradedRows(rng.integers(16, size=rows), 16, 8.0)
    assert joined(store, encoder, alike, releases[1]).together[0].share < 0.05


def test_rows_are_forgotten(tmp_path: Path) -> None:
    memory, rng = GradeMemory(tmp_path / "grades"), np.random.default_rng(0)
    digests, grades = rng.integers(256, size=(50, 16), dtype=np.uint8), rng.integers(16, size=50)
    with memory.locked():
        memory.record("draws", "job", JoinKeys(digests), GradedRows(grades, 16, 8.0))
    ((known, *_), names) = memory.other_releases("", JoinKeys(digests[::-1]))
    assert known.grades.tolist() == grades[::-1].tolist()
    assert names == {"draws": 8.0}
    memory.forget(digests[:20])
    assert memory.other_releases("", JoinKeys(digests))[0][0].grades.tolist() == [-1] * 20 + grades[20:].tolist()
    assert not memory.other_releases("draws", JoinKeys(digests))[0]
    assert [path.stat().st_mode & 0o077 for path in memory.folder.glob("*.safetensors")] == [0]
    for name in ("copy-of-1.safetensors", "._000001-draws.safetensors"):  # not the party's own
        (memory.folder / name).write_bytes(b"x")
    memory.forget_job("another")
    assert memory.other_releases("", JoinKeys(digests))[0]
    memory.forget_job("job")
    assert memory.other_releases("", JoinKeys(digests)) == ([], {})
