"""Whether bounded noise on the number of common rows hides a member: `python -m benchmarks.overlap_sizes`.

An attacker asks for the number of common rows of sets with and without a target, and guesses by the mean difference.
The other common rows are the same in both and cancel. The noise of an answer is drawn anew, or is permanent: a function
of a secret and the two sets, so that the same question has the same answer. Against permanent noise the attacker leaves
another row out of each pair of sets.
"""

from __future__ import annotations

import numpy as np

TRIALS = 4000
BOUNDS = (0, 2, 5, 10)
PAIRS = (1, 10, 100, 1000)


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


def main() -> None:
    """Print a table."""
    kinds = {"drawn anew": (False, False), "permanent, the same sets": (True, False), "permanent, varied": (True, True)}
    print("| noise | attack | " + " | ".join(f"{pairs:,} pairs" for pairs in PAIRS) + " |")
    print("|---" * (2 + len(PAIRS)) + "|")
    for bound in BOUNDS:
        for kind, (permanent, varied) in kinds.items():
            cells = (f"{right(bound, pairs, permanent=permanent, varied=varied):.2f}" for pairs in PAIRS)
            print(f"| ±{bound} | {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
