"""The scripted year by files and by TLS, one after the other: `python -m tests.benchmarks.brief_years`, prints JSON.

A process of its own: it forks, which a process with threads of other tests must not. Both share what it imports, and
grades are fitted by the linear candidate alone: what is fitted is no subject of theirs.
"""

from __future__ import annotations

import json

from benchmarks import year

GRADE = "fit: {kind: grade}"


def main() -> None:
    """Run a month of each kind, with one kill of each command, and print what was left."""
    brief = year.PRIVATE[year.TELCO].replace(GRADE, "fit: {kind: grade, candidates: [linear], folds: 2}")
    assert brief != year.PRIVATE[year.TELCO]
    year.PRIVATE[year.TELCO] = brief
    year.WAIT = 3  # for a partner that was killed, and comes in the next turn
    year.import_ahead()
    years = (year.both_years(200, 1, 1, 1, tls=tls) for tls in (False, True))
    print(json.dumps([year.outcome(*pair) for pair in years]))


if __name__ == "__main__":
    main()
