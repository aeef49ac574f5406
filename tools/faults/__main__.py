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
    parser.add_argument("--runs", type=int, help="train this often through a harmed link instead of running trials")
    parser.add_argument("--rows", choices=["common", "all"], default="common", help="rows of these trainings")
    given = parser.parse_args()
    if given.kills is not None or given.runs is not None:
        return _train(given.kills, given.runs, given.seed, given.rows)
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


def _train(kills: int | None, runs: int | None, seed: int, rows: str) -> int:
    """Kill both organisations, or harm their link, and print what differed from a quiet run."""
    from tools.faults.kills import harm_often, kill_often

    found = harm_often(runs or 0, seed, rows) if kills is None else kill_often(kills, seed, rows)
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
