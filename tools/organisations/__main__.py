"""`python -m tools.organisations`: the data sets one after the other, and one JSON document."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path


def main() -> int:
    """Run the data sets; the exit code is 1 if anything differs from the run in one process."""
    from tools.organisations.cases import CASES
    from tools.organisations.trial import run_case

    parser = argparse.ArgumentParser(prog="python -m tools.organisations", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*CASES], help="this data set; may be repeated")
    parser.add_argument("--data", type=Path, required=True, help="folder with criteo, fate and adult")
    parser.add_argument("--seed", type=int, default=7, help="seed of the shares of rows and of the schedule")
    given = parser.parse_args()
    outcomes = []
    for name in given.only or CASES:
        with tempfile.TemporaryDirectory(prefix="cutlayer-organisations-") as scratch:
            outcomes.append(run_case(CASES[name](given.data, given.seed), Path(scratch), given.seed))
    sys.stdout.write(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
