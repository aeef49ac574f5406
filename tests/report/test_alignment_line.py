"""The sentence on an alignment that both reports begin with."""

from __future__ import annotations

import pytest

from cutlayer.alignment.disclosure import AlignmentRecord, LinkIds, TableSize
from cutlayer.report.alignment import alignment_line, alignment_sentences


def size(rows: int) -> TableSize:
    return TableSize(rows=rows, stated=rows)


def link(party: str, rows: int, common: int, run: int) -> LinkIds:
    return LinkIds(party=party, active=size(3_000), passive=size(rows), common=common, run=run)


def record(links: tuple[LinkIds, ...], **changes: object) -> AlignmentRecord:
    names = tuple(each.party for each in links)
    return AlignmentRecord.model_validate(
        {"method": "psi", "rows": "common", "active": "bank", "passives": names, "links": links, **changes}
    )


ONE = (link("telco", 2_600, 2_400, 2_400),)
TWO = (link("insurer", 2_600, 2_500, 2_300), link("retailer", 2_700, 2_650, 2_300))


@pytest.mark.parametrize(
    ("aligned", "line"),
    [
        (
            record(ONE),
            "The alignment showed bank which 2,400 of its 3,000 ids telco has, and telco which 2,400 of its 2,600 ids "
            "bank has.",
        ),
        (
            record(TWO),
            "The alignment showed bank which 2,500 to 2,650 of its 3,000 ids each of 2 partners has, and each partner "
            "which 2,300 of its 2,600 to 2,700 ids all others have.",
        ),
        (
            record(TWO, rows="all", crossed=False),
            "Between organisations, the alignment shows bank which 2,500 to 2,650 of its 3,000 ids each of 2 partners "
            "has, and each partner which 2,500 to 2,650 of its 2,600 to 2,700 ids bank has.",
        ),
        (record(ONE, method="row numbers"), "Rows were matched by their numbers: no id crossed."),
        (None, ""),
    ],
)
def test_it_states_who_learned_which_ids(aligned: AlignmentRecord | None, line: str) -> None:
    assert alignment_line(aligned) == line


def test_digests_are_named_as_what_can_be_guessed() -> None:
    assert "digests" in alignment_line(record(ONE, method="plain"))


def test_a_passive_party_knows_only_the_stated_size() -> None:
    own = LinkIds(party="telco", active=TableSize(rows=None, stated=4_096), passive=size(2_600), common=None, run=2_400)
    line = alignment_line(record((own,)))
    assert "at least 2,400 of its 4,096 stated ids telco has" in line


def test_rows_that_were_agreed_before_the_run_say_nothing_of_ids_that_are_not_in_it() -> None:
    rows = size(2_400)  # of both tables those that the file names: 3,000 and 2,600 are nowhere in the record
    own = LinkIds(party="telco", active=rows, passive=rows, common=2_400, run=2_400)
    for taken in ("common", "all"):
        found = record((own,), method="agreed", rows=taken)
        assert alignment_line(found) == (
            "The alignment before the run showed bank which at least 2,400 of its ids telco has, and telco which at "
            "least 2,400 of its ids bank has."
        )
        assert "telco learned that at least 2,400 of its ids are in the table of bank." in alignment_sentences(found)
        assert not any("are not" in sentence for sentence in alignment_sentences(found)[1:])


def test_the_active_party_of_a_run_on_all_its_rows_knows_which_a_partner_lacks() -> None:
    links = (LinkIds(party="telco", active=size(3_000), passive=size(2_400), common=2_400, run=2_400),)
    found = record(links, method="agreed", rows="all")
    assert (
        "bank learned that 2,400 of its 3,000 ids are in the table of telco, and that 600 are not."
        in alignment_sentences(found)
    )


def test_of_rows_that_all_have_a_partner_learned_nothing_of_one_other_alone() -> None:
    rows = size(2_300)
    links = tuple(
        LinkIds(party=name, active=rows, passive=rows, common=None, run=2_300) for name in ("insurer", "retailer")
    )
    found = record(links, method="agreed")
    assert (
        "insurer learned that at least 2,300 of its ids are in the tables of bank and retailer. Of the others it did "
        "not learn who lacks them."
    ) in alignment_sentences(found)
