"""`python -m tools.faults`: many random schedules of faults, one after the other."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter


def main() -> int:
    """Run the trials and print one JSON document; the exit code is 1 if one of them did what none may."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial; the others follow")
    given = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tools.faults.trial import certificates, run_trial

    with certificates() as security:
        outcomes = [run_trial(given.seed + number, security) for number in range(given.trials)]
    wrong = {outcome.seed: outcome.wrong for outcome in outcomes if outcome.wrong}
    summary = {
        "trials": len(outcomes),
        "with_faults": sum(bool(outcome.faults) for outcome in outcomes),
        "healed": sum(outcome.healed for outcome in outcomes),
        "healed_with_faults": sum(outcome.healed and bool(outcome.faults) for outcome in outcomes),
        "errors": Counter(kind for outcome in outcomes for kind in outcome.ended.values() if kind != "done"),
        "longest_seconds": round(max(outcome.seconds for outcome in outcomes), 1),
        "wrong": wrong,
    }
    if given.trials == 1:
        summary["outcome"] = vars(outcomes[0])
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
