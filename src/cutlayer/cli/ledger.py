"""`cutlayer ledger`: what all runs together released about a party's labels or rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.cli.app import print_json, print_lines
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.accounting.run_store import RunLine
    from cutlayer.channel.receipts import Deletion


@verb("ledger", consent=("path",))
def ledger(folder: Path = Path(".cutlayer"), *, json: bool = False) -> None:
    """Show what all runs together released about this party's labels or rows, by partner.

    Args:
        folder: The folder of the secrets, which holds the ledger of all runs.

    Example: cutlayer ledger .cutlayer --json
    """
    from cutlayer.accounting.run_store import LEDGER_FILE, RECEIPTS_FOLDER, RunStore
    from cutlayer.consent import check_links

    receipts = (RECEIPTS_FOLDER, f"{RECEIPTS_FOLDER}/*", f"{RECEIPTS_FOLDER}/*/*")
    check_links(folder, f"{LEDGER_FILE}*", *receipts, "*.releases", "*.releases/*")
    store = RunStore(folder / LEDGER_FILE)
    lines = store.lines()
    if not lines:
        remedy = "the first run that releases something of this party makes it in .cutlayer beside the job"
        raise ConfigError.expected(f"a ledger of all runs at {store.path}", "none", remedy)
    forgotten = list(_forgotten(folder / RECEIPTS_FOLDER))
    sums = [(line, store.sharing(line, lines)) for line in lines]
    if json:
        print_json(
            {
                "runs": [_as_json(line, runs) for line, runs in sums],
                "forgotten": [each.model_dump(mode="json") for each in forgotten],
            }
        )
    else:
        print_lines(*_page(sums), *(f"{each.summary}; what was spent stays spent" for each in forgotten))


def _forgotten(receipts: Path) -> Iterator[Deletion]:
    """What the receipts in a folder state."""
    if not receipts.is_dir():
        return
    from cutlayer.channel.receipts import receipts_in  # with PyTorch, which a ledger without receipts need not load

    for known in receipts_in(receipts).values():
        yield from (each.approval for each in known.values())


def _page(sums: Sequence[tuple[RunLine, Sequence[RunLine]]]) -> Iterator[str]:
    from cutlayer.training.run_sums import RENAMED_NOTE, lines_of_party, summed_ledger

    for party in dict.fromkeys(line.party for line, _ in sums):
        yield f"{party}:"
        for line, _ in sums:
            if line.party == party:
                yield f"  {line.time}  job {line.job}, run {line.run}, {line.count:,} rows {line.rows[:8]}"
                yield from (f"    {total.statement}" for total in line.ledger.totals)
                if again := _redrawn_rows(line):
                    yield f"    {again:,} {'row was' if again == 1 else 'rows were'} drawn more than once"
        # The sum of a run's rows is that of every run that shares one of them, so that runs of the same rows have one.
        for rows, sharing in {line.rows: runs for line, runs in sums if line.party == party}.items():
            runs, names = lines_of_party(party, sharing), _names(party, sharing)
            different = len({line.run for line in runs})
            count = "1 run shares" if different == 1 else f"{different} runs share"
            yield f"  all runs, rows {rows[:8]} ({count} a row with them):"
            yield from (f"    {total.statement}" for total in summed_ledger(runs).totals)
            if names:
                yield f"    {RENAMED_NOTE.format(names=', '.join(names), party=party)}"


def _redrawn_rows(line: RunLine) -> int:
    """Rows of a run whose grade was drawn more than once, because their columns changed."""
    from cutlayer.accounting import RandomizedGrade

    return max((e.event.again for e in line.ledger.entries if isinstance(e.event, RandomizedGrade)), default=0)


def _names(party: str, sharing: Sequence[RunLine]) -> list[str]:
    """Names under which the ledger has runs on the same rows that may be of the same party."""
    from cutlayer.training.run_sums import renamed_lines

    return sorted({line.party for line in renamed_lines(party, sharing)})


def _as_json(line: RunLine, sharing: Sequence[RunLine]) -> dict[str, Any]:
    from cutlayer.training.run_sums import lines_of_party, summed_ledger

    runs = lines_of_party(line.party, sharing)
    return {
        "party": line.party,
        "time": line.time,
        "job": line.job,
        "run": line.run,
        "rows": line.rows,
        "count": line.count,
        "totals": [total.model_dump(mode="json") for total in line.ledger.totals],
        "drawn_more_than_once": _redrawn_rows(line),
        "runs_on_these_rows": len({line.run for line in runs}),
        "other_names": _names(line.party, sharing),
        "all_runs": [total.model_dump(mode="json") for total in summed_ledger(runs).totals],
    }
