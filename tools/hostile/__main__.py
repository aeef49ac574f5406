"""`python -m tools.hostile`: every hostile file with every verb that reads it."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tools.hostile.trial import Found, try_share
from tools.hostile.world import make


def main() -> int:
    """Try the variants and print one JSON document; the exit code is 1 if one of them did what none may."""
    parser = argparse.ArgumentParser(prog="python -m tools.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="variants whose name has this text in it")
    parser.add_argument("--sample", type=int, default=6, help="odd values in each JSON file")
    parser.add_argument("--every", type=int, default=1, help="try each n-th variant alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--world", type=Path, help="folder of the honest files, made where it is missing")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cutlayer-hostile-") as scratch:
        world = given.world or Path(scratch) / "world"
        if not world.exists():
            make(world)
        context = multiprocessing.get_context("spawn")
        jobs = [
            (Path(scratch) / f"worker-{number}", world, given.only, given.sample, given.every, number, given.workers)
            for number in range(given.workers)
        ]
        with context.Pool(given.workers) as pool:
            results = pool.starmap(try_share, jobs)
    opened = sum(count for _, count, _ in results)
    found: Found = {name: wrong for _, _, part in results for name, wrong in part.items()}
    by_kind: defaultdict[str, set[str]] = defaultdict(set)
    for name, by_verb in found.items():
        for wrong in by_verb.values():
            for kind, _ in wrong:
                by_kind[kind].add(name)
    summary = {
        "variants": sum(count for count, _, _ in results),
        "opened": opened,
        "seconds": round(time.monotonic() - began),
        "variants_with_wrong": len(found),
        "by_kind": {kind: len(names) for kind, names in sorted(by_kind.items())},
        "by_verb": dict(Counter(verb for by_verb in found.values() for verb in by_verb)),
        "wrong": found,
    }
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
