"""Rows that several keys identify: which are matched, in which order, and what a hostile side can do."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import cutlayer.alignment.buckets as buckets
from cutlayer.alignment.common_rows import CommonRows
from cutlayer.alignment.intersection import Alignment, row_key
from cutlayer.alignment.key_rounds import _UnmatchedRows
from cutlayer.alignment.local_tables import check_ids
from cutlayer.alignment.points import AligningSide
from cutlayer.channel import Kind, Message, link
from cutlayer.channel.codec import encode
from cutlayer.config import IdConfig, Job, LimitsConfig, TableConfig, validated
from cutlayer.data.align import check_id_kinds, check_id_rules
from cutlayer.data.party_data import PartyTable
from cutlayer.data.row_keys import match_keys
from cutlayer.errors import AlignmentError, DataError, ProtocolError
from tests.alignment.psi_runs import BANK, TELCO, aligned
from tests.alignment.psi_runs import table as by_id
from tests.alignment.test_psi_hostile import tamper
from tests.parties.runs import raw_job

SHOP = "shop"
Row = tuple[str | None, str | None]
KEYS = IdConfig.model_validate(
    {"column": [["national"], ["phone", "born"]], "normalise": [["strip"], ["e164", "strip"]]}
)
PLAIN, PSI = Alignment("plain", row_key=bytes(32)), Alignment("psi", row_key=bytes(32), processes=1)

# Three kinds of rows: with both keys, with the first, with the second. Phone numbers are written as +49 30 NUMBER.
BANK_ROWS: tuple[Row, ...] = (
    ("1", "100000"),  # 0: telco row 2 by the first key
    (None, "200000"),  # 1: telco row 0 by the second
    ("3", None),  # 2: telco row 1 by the first
    ("4", "400000"),  # 3: telco row 3 by the second, which has another first key: a typing error
    ("5", "900000"),  # 4: row 5 has the same phone, so that the second key identifies neither
    ("6", "900000"),  # 5
    ("7", "700000"),  # 6: telco row 4 by the first; the second would match it with telco row 5: a conflict
    (None, "900001"),  # 7: nobody's
)
TELCO_ROWS: tuple[Row, ...] = (
    (None, "200000"),  # 0
    ("3", "300000"),  # 1
    ("1", "111111"),  # 2
    ("44", "400000"),  # 3
    ("7", "777777"),  # 4
    (None, "700000"),  # 5
    (None, "900000"),  # 6: the bank's rows 4 and 5 have this phone
)
MATCHED = {(0, 2), (1, 0), (2, 1), (3, 3), (6, 4)}


def keyed(rows: Sequence[Row], party: str = BANK, ids: IdConfig = KEYS, **settings: Any) -> PartyTable:
    """A table with two keys: a number, and a telephone number with a date."""
    return PartyTable(party, columns_of(rows), ids.model_copy(update=settings))


def columns_of(rows: Sequence[Row]) -> pa.Table:
    columns = {
        "national": pa.array([first for first, _ in rows], pa.string()),
        "phone": pa.array([second and f"+49 30 {second}" for _, second in rows], pa.string()),
        "born": pa.array(["1990-01-31"] * len(rows)),
        "x": pa.array(range(len(rows))),
    }
    return pa.table(columns)


def source(table: PartyTable, positions: Any) -> list[int]:
    """Numbers of some rows in the file, from before rows without a key were left out."""
    return table.values("x").take(pa.array(positions)).to_pylist()


def pairs(
    found: Mapping[str, CommonRows], tables: Mapping[str, PartyTable], peer: str = TELCO
) -> list[tuple[int, int]]:
    """The common rows of two parties in their order, by their numbers in the files."""
    return [*zip(*(source(tables[name], found[name].positions) for name in (BANK, peer)), strict=True)]


def both(bank: Sequence[Row], telco: Sequence[Row], alignment: Alignment) -> tuple[list[tuple[int, int]], Any]:
    tables = {BANK: keyed(bank), TELCO: keyed(telco, TELCO)}
    found = aligned(tables[BANK], {TELCO: tables[TELCO]}, alignment)
    assert (found[BANK].ids == found[TELCO].ids).all()
    return pairs(found, tables), found


@pytest.mark.parametrize("alignment", [PLAIN, PSI], ids=["plain", "psi"])
def test_three_kinds_of_rows_by_hand(alignment: Alignment) -> None:
    common, found = both(BANK_ROWS, TELCO_ROWS, alignment)
    assert set(common) == MATCHED
    assert len(common) == len(MATCHED)
    assert found[BANK].by_key == {TELCO: (3, 2)}
    assert found[BANK].sizes == {TELCO: 5}
    plain = alignment.method == "plain"
    assert found[BANK].conflicts == ({TELCO: 1} if plain else {})
    assert found[TELCO].conflicts == {}
    assert found[TELCO].by_key == ({} if plain else {BANK: (3, 2)})


def test_all_ways_give_one_order_and_it_is_that_of_the_secret() -> None:
    orders = {method: both(BANK_ROWS, TELCO_ROWS, way)[0] for method, way in (("plain", PLAIN), ("psi", PSI))}
    assert orders["plain"] == orders["psi"]
    moved = [both(BANK_ROWS, TELCO_ROWS, replace(PSI, row_key=bytes([n] * 32)))[0] for n in (1, 2, 3)]
    assert len({tuple(order) for order in [*moved, orders["psi"]]}) > 1
    assert {frozenset(order) for order in moved} == {frozenset(MATCHED)}


def test_the_order_does_not_depend_on_that_of_the_tables() -> None:
    common, _ = both(BANK_ROWS, TELCO_ROWS, PSI)
    turned, _ = both(BANK_ROWS[::-1], TELCO_ROWS[::-1], PSI)
    assert turned == [(len(BANK_ROWS) - 1 - mine, len(TELCO_ROWS) - 1 - theirs) for mine, theirs in common]


def test_the_other_order_of_the_keys_gives_other_rows() -> None:
    turned = IdConfig.model_validate({"column": [["phone"], ["national"]], "normalise": [["e164"], ["strip"]]})
    turned = turned.model_copy(update={"duplicates": "drop"})
    tables = {BANK: keyed(BANK_ROWS, ids=turned), TELCO: keyed(TELCO_ROWS, TELCO, turned)}
    found = aligned(tables[BANK], {TELCO: tables[TELCO]}, PLAIN)
    # By phone first, telco row 5 is the bank's row 6, and the bank's rows 4 and 5 are left out.
    assert set(pairs(found, tables)) == {(0, 2), (1, 0), (2, 1), (3, 3), (6, 5)}
    assert found[BANK].by_key == {TELCO: (3, 2)}
    assert tables[BANK].left_out == {"with a repeated id": 2}


def test_counts_for_the_owner() -> None:
    bank = keyed(BANK_ROWS)
    assert bank.repeated_keys == (0, 2)
    assert bank.rows == len(BANK_ROWS)
    telco = keyed((*TELCO_ROWS, (None, None), (None, "900000")), TELCO)
    assert telco.repeated_keys == (0, 2)
    assert telco.left_out == {"without a key that identifies them": 3}
    found = match_keys(bank.keys, keyed(TELCO_ROWS, TELCO).keys)
    assert found.conflicts == (1, 0)
    assert match_keys(keyed(TELCO_ROWS, TELCO).keys, bank.keys).conflicts == (0, 1)


def test_a_row_is_the_same_to_its_owner_whichever_key_matched_it() -> None:
    """What a party counts by row, as draws of labels and releases, must not be for a peer to move."""
    bank = keyed(BANK_ROWS)
    first = PartyTable(BANK, pa.table({"national": ["1", "4"], "x": [0, 1]}), "national")
    assert (bank.digests[[0, 3]] == first.digests).all()  # as in a job with the first key alone
    assert len(np.unique(bank.digests, axis=0)) == bank.rows
    other = keyed([("200000", None), (None, "200000")])  # one text under two keys is two ids
    assert (other.digests[0] != other.digests[1]).any()


def reference(bank: Sequence[Row], telco: Sequence[Row]) -> set[tuple[int, int]]:
    """Match by dictionaries."""
    matched: set[tuple[int, int]] = set()
    for key in range(2):
        sides = []
        for side, rows in enumerate((bank, telco)):
            by_value: dict[str, list[int]] = {}
            for number, row in enumerate(rows):
                if row[key] is not None:
                    by_value.setdefault(row[key], []).append(number)  # type: ignore[arg-type]
            taken = {pair[side] for pair in matched}
            sides.append({value: n[0] for value, n in by_value.items() if len(n) == 1 and n[0] not in taken})
        matched |= {(sides[0][value], sides[1][value]) for value in sides[0].keys() & sides[1].keys()}
    return matched


def table_rows() -> st.SearchStrategy[list[Row]]:
    numbers = st.one_of(st.none(), st.integers(1, 12).map(str))
    phones = st.one_of(st.none(), st.integers(100000, 100006).map(str))
    row: st.SearchStrategy[Row] = st.tuples(numbers, phones)
    return st.lists(row, min_size=1, max_size=12, unique_by=lambda row: row[0] or object())


@pytest.mark.usefixtures("quick_masks")
@pytest.mark.parametrize("alignment", [PLAIN, PSI], ids=["plain", "psi"])
@settings(deadline=None, max_examples=30)
@given(table_rows(), table_rows())
def test_the_rows_of_a_match_by_dictionaries(alignment: Alignment, bank: list[Row], telco: list[Row]) -> None:
    try:
        tables = {BANK: keyed(bank), TELCO: keyed(telco, TELCO)}
    except DataError as refused:
        assert "a row with a key that no other row has" in str(refused)  # noqa: PT017
        return
    expected = reference(bank, telco)
    if not expected:
        with pytest.raises(AlignmentError, match="rows that all parties have"):
            aligned(tables[BANK], {TELCO: tables[TELCO]}, alignment)
        return
    found = aligned(tables[BANK], {TELCO: tables[TELCO]}, alignment)
    assert set(pairs(found, tables)) == expected
    assert len(found[BANK].positions) == len(expected)  # type: ignore[arg-type]


SHOP_ROWS: tuple[Row, ...] = ((None, "100000"), ("3", None), ("6", "400000"), (None, "200000"))


@pytest.mark.parametrize("alignment", [PLAIN, PSI], ids=["plain", "psi"])
@pytest.mark.parametrize("all_rows", [False, True])
def test_two_passive_parties(alignment: Alignment, all_rows: bool) -> None:
    """The bank's row 0 is telco's by the first key, and the shop's by the second."""
    tables = {BANK: keyed(BANK_ROWS), TELCO: keyed(TELCO_ROWS, TELCO), SHOP: keyed(SHOP_ROWS, SHOP)}
    found = aligned(tables[BANK], {name: tables[name] for name in (TELCO, SHOP)}, alignment, all_rows=all_rows)
    with_shop = {(0, 0), (2, 1), (1, 3), (5, 2)}  # row 3 has the phone of shop's row 2, whose number is that of row 5
    assert found[BANK].by_key == {TELCO: (3, 2), SHOP: (2, 2)}
    assert found[BANK].sizes == {TELCO: 5, SHOP: 4}
    order = source(tables[BANK], found[BANK].positions)
    if not all_rows:
        assert set(order) == {0, 1, 2}
        for name, matched in ((TELCO, MATCHED), (SHOP, with_shop)):
            assert set(pairs(found, tables, name)) == {pair for pair in matched if pair[0] in order}
            assert (found[name].ids == found[BANK].ids).all()
        return
    assert sorted(order) == [*range(len(BANK_ROWS))]
    for name, matched in ((TELCO, MATCHED), (SHOP, with_shop)):
        places = found[BANK].held.places(name)
        mine, theirs = [order[place] for place in places], source(tables[name], found[name].positions)
        assert {*zip(mine, theirs, strict=True)} == matched
        assert (found[BANK].ids[places] == found[name].ids).all()  # type: ignore[index]


@pytest.mark.usefixtures("quick_masks")
def test_several_buckets_and_padding_and_a_key_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 32)
    draw = np.random.default_rng(3)
    rows: dict[str, list[Row]] = {}
    for name in (BANK, TELCO):
        people = draw.permutation(150)[:120].tolist()
        has = draw.random((120, 2)) < 0.6
        rows[name] = [
            (str(1000 + who) if one else None, str(200000 + who) if two else None)
            for who, (one, two) in zip(people, has.tolist(), strict=True)
        ]
    tables = {BANK: keyed(rows[BANK]), TELCO: keyed(rows[TELCO], TELCO, pad_to=300)}
    found = aligned(tables[BANK], {TELCO: tables[TELCO]}, PSI)
    assert set(pairs(found, tables)) == reference(rows[BANK], rows[TELCO])
    assert min(found[BANK].by_key[TELCO]) > 5
    without: list[Row] = [(number, None) for number, _ in rows[TELCO]]
    tables[TELCO] = keyed(without, TELCO)
    assert tables[TELCO].id_kind == "integer|"
    check_id_kinds({name: table.id_kind for name, table in tables.items()}, {})
    assert aligned(tables[BANK], {TELCO: tables[TELCO]}, PSI)[BANK].by_key[TELCO][1] == 0


def shapes(bank: Sequence[Row], telco: Sequence[Row]) -> list[tuple[Kind, str, tuple[int, ...]]]:
    seen: list[Message] = []
    aligned(keyed(bank), {TELCO: keyed(telco, TELCO)}, PSI, spy=seen.append)
    return [(m.kind, m.sender, *(tuple(t.shape) for t in m.tensors.values())) for m in seen]  # type: ignore[misc]


def test_sizes_show_the_matched_rows_and_not_who_has_which_key() -> None:
    bank: list[Row] = [(str(n), f"{100000 + n}") for n in range(20)]
    full: list[Row] = [(str(n), f"{200000 + n}") for n in range(10, 30)]
    bare: list[Row] = [(str(n), None) for n in range(10, 30)]
    assert shapes(bank, full) == shapes(bank, bare) == shapes([(one, None) for one, _ in bank], full)
    second = [shape for kind, _, *shape in shapes(bank, full) if kind is Kind.MASKED][2:]
    assert second == [[(10, 32)], [(10, 32)]]


def test_no_key_and_no_digest_of_one_crosses() -> None:
    seen: list[Message] = []
    tables = {BANK: keyed(BANK_ROWS), TELCO: keyed(TELCO_ROWS, TELCO)}
    aligned(tables[BANK], {TELCO: tables[TELCO]}, PSI, spy=seen.append)
    wire = b"".join(encode(message) for message in seen)
    for table in tables.values():
        for digests in (*table.keys, table.digests):
            assert not any(digest.tobytes()[:6] in wire for digest in digests if digest.any())


def test_ids_of_the_rows_are_those_of_no_key() -> None:
    """Under another secret they are others: a partner cannot test a key that it guesses."""
    tables = {BANK: keyed(BANK_ROWS), TELCO: keyed(TELCO_ROWS, TELCO)}
    ways = [PSI, replace(PSI, row_key=bytes([1] * 32)), replace(PSI, row_key=None), replace(PSI, row_key=None)]
    ids = {row.tobytes() for way in ways for row in aligned(tables[BANK], {TELCO: tables[TELCO]}, way)[TELCO].ids}
    assert len(ids) == len(ways) * len(MATCHED)
    assert not ids & {row.tobytes() for table in tables.values() for row in (*table.digests, *table.keys[1])}


def test_the_ids_are_the_same_in_all_jobs_of_the_same_parties() -> None:
    """Else a baseline or a trial of a sweep would be measured on other rows; with other parties they are others."""
    plain, two = validated(Job, raw_job(), ""), validated(Job, raw_job(passives=2), "")
    other = validated(Job, raw_job(release="once", epochs=5) | {"channel": {"compress": "int8"}}, "")
    assert plain.digest() != other.digest()
    assert row_key(plain, bytes(32)) == row_key(other, bytes(32))
    keys = {row_key(plain, bytes(32)), row_key(two, bytes(32)), row_key(plain, bytes([1] * 32))}
    assert len(keys) == 3
    assert {len(key) for key in keys} == {32}


def test_tables_with_ids_of_two_kinds_are_refused_with_an_example_of_each() -> None:
    tables = {BANK: by_id([7, 8]), TELCO: by_id(["07", "x"], TELCO)}
    with pytest.raises(AlignmentError, match=r"bank integer \(such as '7'\), telco text \(such as '07'\)"):
        check_ids(tables)
    check_ids({BANK: tables[BANK], TELCO: by_id([9], TELCO)})


def test_a_peer_with_another_number_of_keys_or_rules() -> None:
    with pytest.raises(AlignmentError, match="one number of keys at all parties, got 2 at bank, 1 at telco"):
        check_id_rules({BANK: KEYS.rule, TELCO: IdConfig(column="national").rule})
    with pytest.raises(AlignmentError, match="one normal form"):
        check_id_rules({BANK: KEYS.rule, TELCO: "strip|strip+strip"})
    with pytest.raises(AlignmentError, match="ids of one kind"):
        check_id_kinds({BANK: "integer|text", TELCO: "text|text"}, {})


@pytest.mark.parametrize(
    ("sender", "kind", "nth", "change", "message"),
    [
        (TELCO, Kind.MASKED, 1, lambda t: t[:-1], "by the rows that it stated"),
        (BANK, Kind.MASKED, 1, lambda t: t[:-1], "by the rows that it stated"),
        (BANK, Kind.IDS, 0, lambda t: t[:-1], "an id of each of 5 rows from bank, got 4"),
        (BANK, Kind.IDS, 0, lambda t: torch.cat([t, t[:1]]), "at most 5 rows in all"),
        (BANK, Kind.IDS, 0, lambda t: t[:, :8], "ids of 16 columns from bank, got 8"),
        (BANK, Kind.ORDER, 1, lambda t: torch.cat([t, t[:1]]), "indices of distinct rows"),
    ],
)
def test_another_number_than_the_rounds_so_far_allow(
    monkeypatch: pytest.MonkeyPatch, sender: str, kind: Kind, nth: int, change: Any, message: str
) -> None:
    def changed(tensors: Mapping[str, torch.Tensor], _: object) -> Any:
        return {"tensors": {name: change(tensor) for name, tensor in tensors.items()}}

    tamper(monkeypatch, kind, sender, changed, nth)
    with pytest.raises(ProtocolError, match=message):
        both(BANK_ROWS, TELCO_ROWS, PSI)


def test_no_more_rows_are_matched_than_the_peer_stated() -> None:
    """Its buckets are filled up, so that together they hold more points than rows."""
    port = link(BANK, TELCO, "run")[0]
    side = AligningSide(BANK, keyed(BANK_ROWS), {TELCO: port}, {TELCO: 2}, LimitsConfig(), PSI)
    left = _UnmatchedRows(side)
    left.add(np.array([3]))
    with pytest.raises(ProtocolError, match="at most 1 rows of telco, as it stated, got 2 in common"):
        left.add(np.array([0, 1]))


def test_one_id_for_two_rows_and_an_id_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(tensors: Mapping[str, torch.Tensor], _: object) -> Any:
        return {"tensors": {"digests": tensors["digests"][[0, 0, 2, 3, 4]]}}

    with monkeypatch.context() as patched:
        tamper(patched, Kind.IDS, BANK, twice)
        with pytest.raises(AlignmentError, match="every id once, got 1 repeated"):
            both(BANK_ROWS, TELCO_ROWS, PSI)
    tamper(monkeypatch, Kind.IDS, BANK, lambda tensors, _: {"tensors": {"digests": tensors["digests"] * 0}})
    with pytest.raises(AlignmentError, match="rows that bank and this party have, got none"):
        both(BANK_ROWS, TELCO_ROWS, PSI)


def test_rows_that_a_key_did_not_match_cannot_be_taken_out_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active party names all rows as matched by the first key: it cannot prove the keys that it does not have."""
    bank: list[Row] = [(str(n), f"{100000 + n}") for n in range(8)]
    telco: list[Row] = [(str(n), f"{100000 + n}") for n in range(4, 12)]
    tamper(monkeypatch, Kind.ORDER, BANK, lambda *_: {"tensors": {"positions": torch.arange(8)}})
    with pytest.raises(AlignmentError, match="the common rows at bank, got other rows than it named"):
        both(bank, telco, PSI)


def test_a_peer_that_ends_after_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """An active party of one round sends the ids where the passive party expects the next round."""
    bank = keyed(BANK_ROWS)
    bank.keys = bank.keys[:1]
    with pytest.raises(ProtocolError, match="align of epoch -1, step -1 from bank"):
        aligned(bank, {TELCO: keyed(TELCO_ROWS, TELCO)}, PSI)
    telco = keyed(TELCO_ROWS, TELCO)
    telco.keys = telco.keys[:1]
    with pytest.raises(ProtocolError):
        aligned(keyed(BANK_ROWS), {TELCO: telco}, PSI)


def test_plain_keys_of_another_width(monkeypatch: pytest.MonkeyPatch) -> None:
    telco = keyed(TELCO_ROWS, TELCO)
    telco.keys = telco.keys[:1]
    with pytest.raises(ProtocolError, match="ids of 32 columns from telco, got 16"):
        aligned(keyed(BANK_ROWS), {TELCO: telco}, PLAIN)


def test_an_active_party_that_withholds_matches_learns_by_which_keys_its_rows_match() -> None:
    """A limit that the page on alignment states: it runs the second key on all of its rows, as if none were matched."""
    bank = keyed([(None, f"{100000 + n}") for n in range(5)])
    telco = keyed([(str(n), f"{100000 + n}") for n in range(3)], TELCO)
    assert aligned(bank, {TELCO: telco}, PSI)[BANK].by_key == {TELCO: (0, 3)}


def test_a_table_that_is_read_in_batches_has_the_same_keys(tmp_path: Path) -> None:
    rows: list[Row] = [*BANK_ROWS, (None, None), ("8", "900000")]
    columns = {name: keyed(rows).values(name) for name in ("national", "phone", "born", "x")}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=2)
    config = TableConfig(path=tmp_path / "rows.parquet")
    whole, large = PartyTable(BANK, config, KEYS), PartyTable(BANK, config, KEYS, memory=1)
    assert large.bytes < whole.bytes
    assert (whole.digests == large.digests).all()
    assert all((one == other).all() for one, other in zip(whole.keys, large.keys, strict=True))
    assert (whole.left_out, whole.repeated_keys) == (large.left_out, large.repeated_keys)
    positions = np.arange(whole.rows)[::-1].copy()
    assert whole.ids(positions).to_pylist() == large.ids(positions).to_pylist()


@pytest.mark.parametrize(
    ("duplicates", "rows"),
    [
        ({"duplicates": "first"}, [0, 2, 3]),
        ({"duplicates": "drop"}, [2, 3]),
        ({"duplicates": "latest", "by": "x"}, [1, 2, 3]),
    ],
)
def test_repeated_values_of_the_first_key(duplicates: dict[str, str], rows: list[int]) -> None:
    given: list[Row] = [("1", "100001"), ("1", "100002"), (None, "100003"), ("2", None)]
    with pytest.raises(DataError, match="id 'national': expected every id once, got '1' 2 times"):
        keyed(given)
    table = keyed(given, **duplicates)
    assert source(table, np.arange(table.rows)) == rows


@pytest.mark.parametrize(
    ("duplicates", "matched"),
    [
        ({"duplicates": "drop"}, [(4, 2)]),
        ({"duplicates": "first"}, [(4, 2), (5, 3)]),
        ({"duplicates": "latest", "by": "x"}, [(4, 2), (6, 3)]),
    ],
)
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_value_that_a_removed_row_shared_identifies_no_row(
    duplicates: dict[str, str], matched: list[tuple[int, int]], in_batches: bool, tmp_path: Path
) -> None:
    rows: list[Row] = [
        ("9", "500000"),  # 0: removed, or the row of this first key; row 3 has the same phone
        ("9", "600000"),  # 1: removed, or the row of this first key; row 2 has the same phone
        ("8", "600000"),  # 2
        ("7", "500000"),  # 3
        ("1", "100000"),  # 4: telco row 2 by the first key
        ("5", "700000"),  # 5: one person's phone, in two rows
        ("5", "700000"),  # 6
    ]
    bank = keyed(rows, **duplicates)
    if in_batches:
        parquet.write_table(columns_of(rows), tmp_path / "rows.parquet", row_group_size=2)
        config = TableConfig(path=tmp_path / "rows.parquet")
        bank = PartyTable(BANK, config, KEYS.model_copy(update=duplicates), memory=1)
    telco = keyed([(None, "600000"), (None, "500000"), ("1", None), (None, "700000")], TELCO, **duplicates)
    tables = {BANK: bank, TELCO: telco}
    found = aligned(bank, {TELCO: telco}, PLAIN)
    assert sorted(pairs(found, tables)) == matched
    assert bank.repeated_keys == (0, 4)


def test_dates_and_numbers_are_keys_as_their_text() -> None:
    ids = IdConfig.model_validate([["number"], ["day"]])
    dates = [datetime.date(1990, 1, 31), datetime.date(1991, 2, 1), None]
    typed = PartyTable(BANK, pa.table({"number": [None, None, 7], "day": dates, "x": [1, 2, 3]}), ids)
    text = {"number": [None, None, "7"], "day": ["1990-01-31", "1991-02-01", None], "x": [1, 2, 3]}
    assert (typed.digests == PartyTable(TELCO, pa.table(text), ids).digests).all()
    floats = pa.table({"number": pa.array([float("nan"), None, 7.0]), "day": dates, "x": [1, 2, 3]})
    assert (typed.digests == PartyTable(BANK, floats, ids).digests).all()


def test_a_wrong_telephone_number_of_a_key_is_named() -> None:
    with pytest.raises(DataError, match=r"id 'phone': expected telephone numbers.*got others in 1 rows"):
        keyed([("1", "100001"), ("2", "12x"), ("3", None)])
