"""Whether bounded noise on the number of common rows hides a member: `python -m benchmarks.overlap_sizes`.

An attacker asks for the number of common rows of sets with and without a target, and guesses by the mean difference.
The other common rows are the same in both and cancel. The noise of an answer is drawn anew, or is permanent: a function
of a secret and the two sets, so that the same question has the same answer. Against permanent noise the attacker leaves
another row out of each pair of sets.

Without noise, which is what `cutlayer align --dry-run` answers, the attacker halves its list of candidates: the second
table has the number of runs until each of them is known to be a member or not (Jiang, Du and Yan, AnonPSI, NDSS 2024,
whose attacks choose the halves by what is known).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

TRIALS = 4000
BOUNDS = (0, 2, 5, 10)
PAIRS = (1, 10, 100, 1000)
CANDIDATES, SHARES = 1000, (0.01, 0.1, 0.5)


def right(bound: int, pairs: int, *, permanent: bool, varied: bool, seed: int = 0) -> float:
    """Share of targets of which the guess is right.

    Args:
        bound: Noise of an answer is uniform from its negative to itself.
        pairs: Number of pairs of questions about a target.
        permanent: Whether the same question has the same answer.
        varied: Whether each pair leaves another row out, so that its questions are new.
    """
    draw = np.random.default_rng(seed)
    member = draw.integers(2, size=TRIALS)
    questions = pairs if varied or not permanent else 1
    noise = draw.integers(-bound, bound + 1, size=(TRIALS, 2, questions)).mean(axis=2)
    found = member + noise[:, 0] - noise[:, 1] > 0.5
    return float((found == (member == 1)).mean())


def halved(candidates: Sequence[int], size: Callable[[Sequence[int]], int]) -> tuple[set[int], int]:
    """Find the members among candidates by numbers of common rows alone; returns them and the number of runs.

    Args:
        candidates: Ids that the attacker can name.
        size: Number of them that are members; each call is a run of an alignment.
    """
    members: set[int] = set()
    left, runs = [(list(candidates), size(candidates))], 1
    while left:
        some, count = left.pop()
        if count == len(some):
            members.update(some)
        elif count:
            first, second = some[: len(some) // 2], some[len(some) // 2 :]
            of_first = size(first)
            runs += 1
            left += [(first, of_first), (second, count - of_first)]
    return members, runs


def runs_needed(share: float, seed: int = 0) -> float:
    """Mean number of runs over 20 lists of candidates, of which a share are members."""
    draw, counts = np.random.default_rng(seed), []
    for _ in range(20):
        own = set(draw.permutation(CANDIDATES)[: round(share * CANDIDATES)].tolist())
        counts.append(halved(range(CANDIDATES), lambda some, own=own: len(own.intersection(some)))[1])  # type: ignore[misc]
    return float(np.mean(counts))


def main() -> None:
    """Print both tables."""
    kinds = {"drawn anew": (False, False), "permanent, the same sets": (True, False), "permanent, varied": (True, True)}
    print("| noise | attack | " + " | ".join(f"{pairs:,} pairs" for pairs in PAIRS) + " |")
    print("|---" * (2 + len(PAIRS)) + "|")
    for bound in BOUNDS:
        for kind, (permanent, varied) in kinds.items():
            cells = (f"{right(bound, pairs, permanent=permanent, varied=varied):.2f}" for pairs in PAIRS)
            print(f"| ±{bound} | {kind} | {' | '.join(cells)} |", flush=True)
    print(f"\n| members of {CANDIDATES:,} candidates | runs |\n|---|---|")
    for share in SHARES:
        print(f"| {share:.0%} | {runs_needed(share):.0f} |")


if __name__ == "__main__":
    main()
