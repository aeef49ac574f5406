"""The sum of what a party's runs released about the same rows, and its budget over all of them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from cutlayer.accounting import Entry, Ledger, RandomizedResponse
from cutlayer.accounting.run_store import RunLine
from cutlayer.accounting.wording import asset_text
from cutlayer.config import BudgetConfig, Job
from cutlayer.config.party import ALL_RUNS
from cutlayer.errors import BudgetExceeded

REMEDY = "take rows that no earlier run used, fewer releases or more noise, or raise the budget"
RENAMED_NOTE = "not in the sum: runs on these rows as {names}; if that is {party} under another name, the costs add up"


def lines_of_party(name: str, lines: Iterable[RunLine]) -> list[RunLine]:
    """The lines of a party."""
    return [line for line in lines if line.party == name]


def names_of_others(name: str, lines: Iterable[RunLine], parties: Collection[str]) -> set[str]:
    """Names that are of others than a party: those that a run, or the present job, has together with its own."""
    return {*parties}.union(*(line.names for line in lines if name in line.names)) - {name}


def renamed_lines(name: str, lines: Sequence[RunLine], parties: Collection[str] = ()) -> list[RunLine]:
    """Lines of what may be the same party under another name: those of names that no run has together with its own.

    One organisation may have another name in each job, and keep its secrets in one folder.

    Args:
        name: Name of the party.
        lines: Lines of runs on the same rows, of all parties; one at least of this party.
        parties: Names of the parties of the present job, which are others.

    Returns:
        The lines, about the same assets, as if they were of this party.
    """
    others = names_of_others(name, lines, parties) | {name}
    assets = {entry.protects for line in lines_of_party(name, lines) for entry in line.ledger.entries}
    renamed = []
    for line in lines:
        entries = [replace(entry, party=name) for entry in line.ledger.entries if entry.protects in assets]
        if line.party not in others and entries:
            renamed.append(replace(line, ledger=Ledger(tuple(entries))))
    return renamed


def summed_ledger(lines: Sequence[RunLine], delta: float | None = None) -> Ledger:
    """The ledger of several runs on the same rows.

    Args:
        lines: At least one line, of one party.
        delta: Delta to state epsilon at; by default the smallest that a run states. It is at least twice the
            `tail` of all private fits, and a little more.
    """
    # Not `Ledger.merged`: a line names each receiver of its run, also those that nothing is hidden from. Who is not in
    # it was no party of that run, and was sent nothing.
    return Ledger(
        tuple(
            replace(entry, run=run, delta=entry.delta if delta is None else delta)
            for run, line in enumerate(lines)
            for entry in line.ledger.entries
        )
    )


def check_budget(name: str, lines: Sequence[RunLine], budget: BudgetConfig | None) -> None:
    """Raise if runs on the same rows together cost more than a budget of all runs.

    Args:
        name: Name of the party.
        lines: The runs, those under other names included.
        budget: The party's budget.

    Raises:
        BudgetExceeded: They do, or one of them has no guarantee.
    """
    if budget is None or budget.over != ALL_RUNS:
        return
    renamed = sorted({line.party for line in lines} - {name})
    other_names = f" ({', '.join(renamed)} may be its other names)" if renamed else ""
    wanted = (
        f"{name}: expected all runs on the same rows to cost epsilon {budget.epsilon:g} at most, as its budget says"
    )
    runs = len({line.run for line in lines})
    for total in summed_ledger(lines, budget.delta).totals:
        towards = f"towards {', '.join(total.towards)}"
        if total.epsilon is None:
            raise BudgetExceeded(
                f"{wanted}, got one without a guarantee{other_names} {towards}: {total.why}; nothing was sent"
            )
        if total.epsilon > budget.epsilon * (1 + 1e-9) or total.delta > budget.delta:
            at = f"at delta {max(total.delta, budget.delta):g}"
            got = f"{total.epsilon:.4g} {at} over {runs} runs{other_names} {towards}"
            raise BudgetExceeded(f"{wanted}, got {got}; nothing was sent; {REMEDY}")


def check_with_others(line: RunLine, sharing: Sequence[RunLine], job: Job, budget: BudgetConfig | None) -> None:
    """Raise if a run, with the others that share its rows, costs more than a budget of all runs."""
    renamed = renamed_lines(line.party, [*sharing, line], job.parties)
    check_budget(line.party, [*lines_of_party(line.party, sharing), *renamed, line], budget)


def warn_of_draws(line: RunLine, others: Sequence[RunLine]) -> None:
    """Warn if earlier runs drew labels of the same rows otherwise: the costs add up."""
    mine = {entry.fingerprint for entry in line.ledger.entries if isinstance(entry.event, RandomizedResponse)}
    drawn = [other for other in others if any(_draws_labels(entry, mine) for entry in other.ledger.entries)]
    if not mine or not drawn:
        return
    secret = " under another secret" if any(other.source != line.source for other in drawn) else ""
    total = next((total for total in summed_ledger([*others, line]).totals if total.protects == "labels"), None)
    cost = f"epsilon {total.epsilon:.4g}" if total and total.epsilon is not None else "no guarantee"
    warnings.warn(
        f"labels of the same rows were drawn before{secret}, with other draws ({_times(len(drawn))}); the costs add "
        f"up: {asset_text('labels', line.party)}, {cost} in all; keep secret and eps to draw them alike",
        stacklevel=2,
    )


def _draws_labels(entry: Entry, mine: set[str | None]) -> bool:
    return isinstance(entry.event, RandomizedResponse) and entry.fingerprint not in mine


def _times(count: int) -> str:
    return "by one run" if count == 1 else f"by {count} runs"
