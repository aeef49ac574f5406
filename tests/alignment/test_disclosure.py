"""What an alignment makes known, in numbers, as each side records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from cutlayer.alignment.disclosure import AlignmentRecord, Disclosure
from cutlayer.alignment.intersection import Alignment
from cutlayer.channel import link
from cutlayer.config import IdConfig, Job, LimitsConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.parties.agreement.handshake import SavedPoints, agree_active, agree_passive
from cutlayer.parties.drive.drive import drive_together
from cutlayer.report.alignment import alignment_sentences, learned_sentence
from tests.alignment.psi_runs import BANK, TELCO, table
from tests.parties.test_all_rows import raw as raw_all

SHOP = "shop"
IDS = {BANK: [3, 1, 4, 5, 9, 2, 6], TELCO: [9, 2, 77, 1], SHOP: [5, 88, 1]}


def records(tables: Mapping[str, PartyTable], method: str = "psi", rows: str = "common") -> dict[str, AlignmentRecord]:
    """What each party records of an alignment with all parties here."""
    raw = raw_all() | {"rows": rows}
    raw["parties"] = {name: party for name, party in raw["parties"].items() if name in tables}
    raw["model"]["bottom"] = {name: kind for name, kind in raw["model"]["bottom"].items() if name in tables}
    job = validated(Job, raw, "")
    ends = {name: link(BANK, name, "run") for name in tables if name != BANK}
    alignment, limits = Alignment(method, processes=1), LimitsConfig()
    ports = {name: pair[0] for name, pair in ends.items()}
    parties: dict[str, Any] = {BANK: agree_active(job, tables[BANK], BANK, ports, [], limits, alignment)}
    for name, (_, there) in ends.items():
        parties[name] = agree_passive(job, tables[name], there, SavedPoints(), limits, alignment)
    return {name: agreement.record for name, agreement in drive_together(parties).items()}


def known(record: AlignmentRecord, learner: str, *about: str) -> Disclosure:
    [found] = [each for each in record.disclosures if (each.learner, each.about) == (learner, about)]
    return found


def opened(*names: str, **settings: Any) -> dict[str, PartyTable]:
    return {name: table(IDS[name], name, **settings if name == TELCO else {}) for name in names}


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_of_two_parties_each_learns_which_of_its_ids_the_other_has(method: str) -> None:
    found = records(opened(BANK, TELCO), method)
    for record in found.values():
        mine, theirs = known(record, BANK, TELCO), known(record, TELCO, BANK)
        assert (mine.own_ids, mine.present_ids, mine.absent_ids) == (7, 3, 4)
        assert (theirs.own_ids, theirs.present_ids, theirs.absent_ids) == (4, 3, 1)
        assert (mine.size.stated, theirs.size.stated) == (4, 7)
        assert mine.guessable == (4 if method == "plain" else None)
    assert known(found[TELCO], BANK, TELCO).is_stated == (method == "psi"), "only an intersection can be padded"
    assert learned_sentence(known(found[BANK], BANK, TELCO)) == (
        "bank learned that 3 of its 7 ids are in the table of telco, and that 4 are not."
    )


def test_a_padded_table_is_stated_larger_than_it_is_and_its_owner_is_shown_both() -> None:
    found = records(opened(BANK, TELCO, pad_to=50))
    at_bank, at_telco = known(found[BANK], BANK, TELCO), known(found[TELCO], BANK, TELCO)
    assert (at_bank.size.rows, at_bank.size.stated) == (None, 50)
    assert (at_telco.size.rows, at_telco.size.stated) == (4, 50)
    assert known(found[TELCO], TELCO, BANK).own_ids == 4
    assert known(found[BANK], TELCO, BANK).own_ids == 50
    assert "The size stated to it is 50 ids, of which 46 are padding." in " ".join(alignment_sentences(found[TELCO]))
    assert "3 of the 50 ids that it stated are in the table of bank, and that up to 47 are not" in " ".join(
        alignment_sentences(found[BANK])
    )


def test_on_common_rows_a_partner_learns_what_all_have_and_not_who_lacks_the_rest() -> None:
    found = records(opened(BANK, TELCO, SHOP))
    assert [known(found[BANK], BANK, name).present_ids for name in (TELCO, SHOP)] == [3, 2]
    for name, other, own in ((TELCO, SHOP, 4), (SHOP, TELCO, 3)):
        for record in (found[BANK], found[name]):
            of_all = known(record, name, BANK, other)
            assert (of_all.own_ids, of_all.present_ids, of_all.absent_ids) == (own, 1, own - 1)
            assert (name, (BANK,)) not in [(each.learner, each.about) for each in record.disclosures]
        at_least = known(found[name], BANK, name)
        assert (at_least.present_ids, at_least.absent_ids, at_least.at_least) == (1, None, True), (
            "the partner is not told"
        )
        assert "at least 1 of the 7 ids" in learned_sentence(at_least)


def test_on_all_rows_each_partner_learns_which_of_its_ids_the_active_party_has() -> None:
    found = records(opened(BANK, TELCO, SHOP), rows="all")
    for name, there, absent in ((TELCO, 3, 1), (SHOP, 2, 1)):
        for record in (found[BANK], found[name]):
            assert (known(record, name, BANK).present_ids, known(record, name, BANK).absent_ids) == (there, absent)
            assert known(record, BANK, name).present_ids == there
    assert "The run is on all rows of bank." in alignment_sentences(found[BANK])[0]


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_by_several_keys_both_learn_by_which_key_each_row_is_matched(method: str) -> None:
    rule = IdConfig.model_validate({"column": [["a"], ["b"]]})
    values = {
        BANK: {"f": [1, 2, 3, 4], "a": ["1", "2", None, "4"], "b": ["x", "y", "z", "w"]},
        TELCO: {"f": [1, 2, 3, 4], "a": ["1", None, "7", "8"], "b": ["q", "y", "z", "v"]},
    }
    found = records({name: PartyTable(name, pa.table(columns), rule) for name, columns in values.items()}, method)
    at_bank = known(found[BANK], BANK, TELCO)
    assert (at_bank.present_ids, at_bank.absent_ids, at_bank.by_key) == (3, 1, (1, 2))
    assert known(found[TELCO], TELCO, BANK).present_ids == 3
    assert known(found[TELCO], TELCO, BANK).by_key == ((1, 2) if method == "psi" else ())
    assert "By which key each is matched (1, 2)." in " ".join(alignment_sentences(found[BANK]))


def test_row_numbers_are_no_secret() -> None:
    tables = {name: PartyTable(name, pa.table({"x": [1, 2, 3]}), "@row") for name in (BANK, TELCO)}
    found = records(tables)
    assert found[TELCO].method == "row numbers"
    assert found[TELCO].disclosures == ()
    assert alignment_sentences(found[TELCO])[0].startswith("Rows were matched by their numbers")
