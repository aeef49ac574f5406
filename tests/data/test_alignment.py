from __future__ import annotations

import datetime
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlayer.data.align import check_id_kinds, checked_positions, intersect, order_digest
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.ids import canonical_ids, id_kind, row_digests
from cutlayer.errors import AlignmentError, DataError

id_sets = st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=2, max_size=4)


def test_the_digest_is_blake2b_of_the_canonical_text() -> None:
    wanted = blake2b(b"-12", digest_size=16).digest()
    for ids in (pa.array([-12]), pa.array(["-12 "]), pa.array([-12.0]), pa.array(["-12"]).dictionary_encode()):
        assert row_digests(ids).tobytes() == wanted
    composed, decomposed = pa.array(["caf\u00e9"]), pa.array(["cafe\u0301"])
    assert (row_digests(composed) == row_digests(decomposed)).all()


def test_kinds_of_ids() -> None:
    assert id_kind(canonical_ids(pa.array([1, 2], pa.uint16()), "ids")) == "integer"
    assert id_kind(canonical_ids(pa.array(["0", "-5", "12345678901234567890123"]), "ids")) == "integer"
    assert id_kind(canonical_ids(pa.array(["1", "a"]), "ids")) == "text"
    assert id_kind(canonical_ids(pa.array(["01"]), "ids")) == "text"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (pa.array([1, None, None]), "none in 2 rows, the first is row 1"),
        (pa.array(["a", "", "b"]), "none in 1 rows, the first is row 1"),
        (pa.array([7, 7, 8, 8, 9, 9, 9, 5, 5]), "'7' 2 times, '8' 2 times, '9' 3 times and 1 more ids"),
        (pa.array(["a", " a"]), "'a' 2 times"),
        (pa.array([1.5]), "whole numbers or text, got double"),
        (pa.array([2.0**60]), "whole numbers or text, got double"),
        (pa.array([True]), "got bool"),
        (pa.array([datetime.datetime(2020, 1, 1)]), "got timestamp"),
    ],
)
def test_bad_ids(ids: pa.Array, message: str) -> None:
    with pytest.raises(DataError) as caught:
        row_digests(ids, "party bank: id 'customer'")
    assert message in str(caught.value)
    assert "party bank: id 'customer'" in str(caught.value)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_duplicates_as_a_set_finds_them(words: list[tuple[int, int]]) -> None:
    digests = np.array(words, dtype=np.uint64).reshape(-1, 2).view(np.uint8)
    assert has_duplicates(digests) == (len(set(words)) < len(words))


@settings(deadline=None)
@given(id_sets, st.randoms(use_true_random=False))
def test_the_intersection_as_sets_find_it(sets: list[set[int]], random: object) -> None:
    tables = {f"p{index}": random.sample(sorted(ids), len(ids)) for index, ids in enumerate(sets)}  # type: ignore[attr-defined]
    digests = {party: row_digests(pa.array(ids)) for party, ids in tables.items()}
    common = set.intersection(*sets)
    if not common:
        with pytest.raises(AlignmentError, match="none of"):
            intersect(digests)
        return
    positions = intersect(digests)
    found = [[tables[party][position] for position in positions[party]] for party in tables]
    assert all(order == found[0] for order in found)
    assert sorted(found[0]) == sorted(common)
    keys = [digests["p0"][position].tobytes() for position in positions["p0"]]
    assert keys == sorted(keys)


def test_the_order_does_not_depend_on_anybodys_file() -> None:
    ids = np.arange(1000)
    rng = np.random.default_rng(0)
    first = intersect({"a": row_digests(pa.array(ids)), "b": row_digests(pa.array(ids[:700]))})
    shuffled_a, shuffled_b = rng.permutation(ids), rng.permutation(ids[:700])
    second = intersect({"b": row_digests(pa.array(shuffled_b)), "a": row_digests(pa.array(shuffled_a))})
    assert (ids[first["a"]] == shuffled_a[second["a"]]).all()
    assert (ids[first["a"]] == shuffled_b[second["b"]]).all()


def test_digests_from_elsewhere_are_checked() -> None:
    good = row_digests(pa.array([1, 2, 3]))
    with pytest.raises(AlignmentError, match="party b: every id once, got 2 repeated"):
        intersect({"a": good, "b": np.concatenate([good, good[1:]])})
    with pytest.raises(AlignmentError, match=r"party b: uint8 digests \(n, 16\)"):
        intersect({"a": good, "b": good[:, :8]})
    with pytest.raises(AlignmentError, match="none of 3 at a, 0 at b"):
        intersect({"a": good, "b": good[:0]})


def test_equal_halves_of_digests_are_told_apart() -> None:
    a = np.zeros((3, 16), dtype=np.uint8)
    a[:, 15] = [3, 1, 2]
    b = np.zeros((2, 16), dtype=np.uint8)
    b[:, 15], b[1, 0] = [3, 1], 1
    positions = intersect({"a": a, "b": b})
    assert positions["a"].tolist() == [0]
    assert positions["b"].tolist() == [0]


def test_the_order_digest_knows_the_order() -> None:
    digests = row_digests(pa.array([1, 2, 3]))
    assert order_digest(digests) == order_digest(digests.copy())
    assert len(order_digest(digests)) == 16
    assert order_digest(digests) != order_digest(digests[::-1])


def test_kinds_must_agree() -> None:
    check_id_kinds({"a": "integer", "b": "integer"}, {"a": 3, "b": 4})
    check_id_kinds({"a": "row", "b": "row"}, {"a": 3, "b": 3})
    with pytest.raises(AlignmentError, match="got a integer, b text"):
        check_id_kinds({"a": "integer", "b": "text"}, {"a": 3, "b": 3})
    with pytest.raises(AlignmentError, match="got a 3 rows, b 4 rows"):
        check_id_kinds({"a": "row", "b": "row"}, {"a": 3, "b": 4})


@pytest.mark.parametrize("positions", [[0, 3], [-1], [1, 1], [], [[0]], [0.0]])
def test_positions_from_elsewhere_are_checked(positions: list) -> None:
    with pytest.raises(AlignmentError, match="party telco"):
        checked_positions(np.array(positions), 3, "party telco")


def test_large_tables_are_sorted_share_by_share_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    ids = [draw.permutation(3000)[:2000] for _ in range(3)]
    digests = {name: row_digests(pa.array(own)) for name, own in zip("abc", ids, strict=True)}
    whole = intersect(digests)
    monkeypatch.setattr("cutlayer.data.digest_shares.SORTED_ROWS", 50)
    parts = intersect(digests)
    assert all((whole[name] == parts[name]).all() for name in "abc")
    with pytest.raises(AlignmentError, match="party b: every id once, got 2000 repeated"):
        intersect({"a": digests["a"], "b": np.concatenate([digests["b"]] * 2)})
    with pytest.raises(AlignmentError, match="rows that all parties have"):
        intersect({"a": row_digests(pa.array(np.arange(300))), "b": row_digests(pa.array(np.arange(300, 600)))})
