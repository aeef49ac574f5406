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
    parser.add_argument("--frames", type=int, help="decode this many changed frames instead of running trials")
    parser.add_argument("--kills", type=int, help="kill each of two organisations this often instead of running trials")
    given = parser.parse_args()
    if given.kills is not None:
        return _kill(given.kills, given.seed)
    if given.frames is not None:
        return _fuzz(given.frames, given.seed)
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


def _kill(kills: int, seed: int) -> int:
    """Kill both organisations and print what differed from a quiet run."""
    from tools.faults.kills import kill_often

    found = kill_often(kills, seed)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 1 if found["wrong"] else 0


def _fuzz(frames: int, seed: int) -> int:
    """Decode changed frames and print what became of them."""
    from tools.faults.fuzz import fuzz

    found = fuzz(frames, seed)
    sys.stdout.write(json.dumps(vars(found), indent=1) + "\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
