"""Which release of a party's embeddings an attack read: of a party that releases once, the only one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cutlayer.config.party import LABEL_FREE
from cutlayer.results.leaks import LeakResult
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

ONLY_RELEASE = "the only release"


def is_only_release(report: Report, leak: LeakResult) -> bool:
    """Whether the embeddings that an attack read were sent a single time, although every epoch uses them.

    Args:
        report: The report.
        leak: The leak of an attack.
    """
    party = next((party for party in report.parties if party.name == leak.party), None)
    if leak.message != "embedding" or party is None or not party.released_once:
        return False
    if party.traffic.get("gradient", (0, 0))[1]:
        return False  # it sent embeddings in every step of the warm-up epochs too
    # Where releasing once is the defence, the undefended baseline releases in every step.
    label_free = any(entry.protection == LABEL_FREE for entry in report.ledger.entries)
    return not (label_free and leak.run == RunKind.UNDEFENDED)


def release_of(report: Report, leak: LeakResult) -> str:
    """The only release, the whole run, or the worst epoch.

    Args:
        report: The report.
        leak: The leak of an attack.
    """
    if is_only_release(report, leak):
        return ONLY_RELEASE
    return "whole run" if leak.whole_run else f"epoch {leak.epoch}"


def release_words(carried: Collection[str], parties: Iterable[str]) -> str:
    """What parties sent of their rows, in words.

    Args:
        carried: Names of those that released grades.
        parties: Names of the parties.

    >>> release_words({"telco"}, ["telco"]), release_words({"telco"}, ["telco", "shop"])
    ('grades of telco', 'grades of telco and embeddings of shop')
    """
    names = [*parties]
    each = {
        "grades": [name for name in names if name in carried],
        "embeddings": [name for name in names if name not in carried],
    }
    return " and ".join(f"{what} of {', '.join(some)}" for what, some in each.items() if some)
