"""The sentence on an alignment that both reports begin with."""

from __future__ import annotations

import pytest

from cutlayer.alignment.disclosure import AlignmentRecord, LinkIds, TableSize
from cutlayer.report.alignment import alignment_line


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
