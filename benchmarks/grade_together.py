"""What grades of several labels carry together: a part of `python -m benchmarks grade_attacks`.

- `together`: of honest labels, which are the label and two attributes of the label owner's own columns; of five jobs
  with the same labels; and of labels that are b, and a xor b, of two attributes of the partner, where its owner has b
  without a limit. The default limit must let honest labels pass that pass it one by one, and refuse the last two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grade_attacks import LABEL_EPSILON, refit
from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Codes, Graded, Rows, attributes
from cutlayer.errors import ConfigError
from cutlayer.parties.carried_limits import check_limits
from cutlayer.parties.carried_together import GradedRows as Released
from cutlayer.parties.carried_together import with_earlier_releases
from cutlayer.problem.metrics.roc import roc_auc

COLUMN_EPSILONS = (8.0, 4.0)
HONEST, REFITS = 3, 5
"""Number of labels, and of jobs with the same ones."""
KNOWN = 2048
"""Rows of which the label owner knows the attribute."""


def together(name: str, data: Path, seed: int, done: set[str], _: int) -> Iterator[dict[str, Any]]:
    """What grades of several labels carry, alone and together, and whether the default limit refuses them."""
    for epsilon in COLUMN_EPSILONS:
        case = f"together {name} {epsilon:g} {seed}"
        if case in done:
            continue
        table = labelled(name, data)
        rows, own, partner = Rows.of(table, seed), attributes(table.bank), attributes(table.partner)
        spread = [each for each in own.values() if 0.1 < each.mean() < 0.9][: HONEST - 1]
        honest = [_graded(rows, each, epsilon, seed, f"{at}") for at, each in enumerate([rows.labels, *spread])]
        again = [rows.regraded(refit(rows, at, seed), epsilon) for at in range(REFITS)]
        a, b = sorted(partner.values(), key=lambda each: abs(each.mean() - 0.5))[:2]
        chosen = [_graded(rows, each, epsilon, seed, f"chosen {at}") for at, each in enumerate([b, a ^ b])]
        codes = [rows.released(each, epsilon, f"{at} {seed}") for at, each in enumerate(chosen)]
        yield {
            "case": case,
            "part": "together",
            "data": name,
            "epsilon": epsilon,
            "honest": _carried(rows, honest, epsilon),
            "refits": _carried(rows, again, epsilon),
            "chosen": _carried(rows, chosen, epsilon),
            "read": [_read([each], a, seed) for each in codes] + [_read(codes, a, seed)],
        }


def _graded(rows: Rows, labels: Codes, epsilon: float, seed: int, key: str) -> Graded:
    sent = rows.drawn(labels.astype(np.int64), LABEL_EPSILON, 2, f"together {seed} {key}")
    return rows.graded(sent, LABEL_EPSILON, epsilon, seed)


def _carried(rows: Rows, every: Sequence[Graded], epsilon: float) -> dict[str, Any]:
    """Largest share of an attribute that one release carries, and all together; what they add most; what is refused."""
    releases = [Released(each.grades, each.bands, epsilon) for each in every]
    alone = [rows.carried(each, epsilon) for each in every]
    side = rows.partner
    joint = with_earlier_releases(alone[-1], side.store, side.encoder, releases[-1], releases[:-1])
    added = [(each.undrawn or 0.0) - each.alone for each in joint.together]
    return {
        "alone": max(found.attributes[0].share for found in alone),
        "together": joint.together[0].share,
        "added": max(added),
        "refused_alone": any(_refused(each) for each in alone),
        "refused_together": _refused(joint.model_copy(update={"attributes": ()})),
    }


def _refused(found: Any) -> bool:
    try:
        check_limits(found, {}, "partner")
    except ConfigError:
        return True
    return False


def _read(codes: Sequence[Codes], truth: Codes, seed: int) -> float:
    """AUC of the attribute on other rows, by how many of the known rows of a code have it."""
    joined = np.ravel_multi_index(tuple(codes), [int(each.max()) + 1 for each in codes])
    order = np.random.default_rng(seed).permutation(len(truth))
    known, rest = order[: min(KNOWN, len(order) // 2)], order[min(KNOWN, len(order) // 2) :]
    have = np.bincount(joined[known], truth[known], joined.max() + 1)
    score = (have + truth[known].mean()) / (np.bincount(joined[known], minlength=joined.max() + 1) + 1)
    return roc_auc(score[joined[rest]], truth[rest] == 1)


def of_together(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table."""
    kinds = "three labels: alone, together, added | five refits"
    yield f"| data set | epsilon | {kinds} | AUC of a by b; by a xor b; by both |"
    yield "|---|---|---|---|---|"
    for line in lines:
        shares = [_of(line[kind]) for kind in ("honest", "refits")]
        reads = "; ".join(f"{each:.2f}" for each in line["read"])
        refused = " (refused)" if line["chosen"]["refused_together"] else ""
        yield f"| {line['data']} | {line['epsilon']:g} | {' | '.join(shares)} | {reads}{refused} |"


def _of(found: Mapping[str, Any]) -> str:
    refused = [word for word in ("alone", "together") if found[f"refused_{word}"]]
    shares = ", ".join(f"{found[key]:.2f}" for key in ("alone", "together", "added"))
    return f"{shares}{f' (refused {refused[0]})' if refused else ''}"
