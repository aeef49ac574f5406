"""The similarity attack: messages of a class point the same way."""

from __future__ import annotations

from functools import partial

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target, nonzero_rows
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, functional, torch

ROUNDS = 10
_ABSENT = -2.0  # below every cosine
_SHORTEST = 1e-12  # length that a shorter row is divided by, as in `functional.normalize`


class Similarity(HistoryAttack):
    """Score a row for each class by its cosine with a row of that class, averaged over the epochs.

    The party knows the label of one row of each class. Gradients are taken as sent, embeddings centred. The variant
    `distance` uses the Euclidean distance, and `clusters` replaces the known rows by the centres that spherical k-means
    finds from them in every epoch. Of gradients of three classes or more, `axis` is the squared cosine: a defence that
    turns some rows around, such as `max_norm`, leaves each on the line through the origin that its class shares. Two
    classes share one line.

    The label enumeration attack (Jiang et al. 2026, arXiv 2603.03777; judged by its abstract) names clusters without a
    label, by the cosine with the first gradients of models trained under each mapping of clusters to labels. It is not
    here: a top model whose outputs are permuted together with the labels sends the same gradients, so the cosine names
    no cluster unless the top model's initial weights are known, which they are to the active party alone.

    Reference: Liu et al., Similarity-based label inference attack against training and inference of split learning
    (arXiv 2203.05222), section 4: cosine and Euclidean distance, with one known row of each class or by clustering.
    """

    name = "similarity"
    reference = "Liu et al. 2022 (arXiv 2203.05222), section 4"
    reads = (Target.GRADIENT, Target.EMBEDDING)
    needs = frozenset({Need.ONE_PER_CLASS})
    tasks = frozenset({"binary", "multiclass"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: In no epoch does a known row of each class have a message.
        """
        binary = view.task.kind == "binary"
        classes = 2 if binary else len(view.task.classes)
        known, labels = knowledge.labels_among(view.rows)
        sums: dict[str, Tensor] = {}
        seen = torch.zeros(len(view.rows), dtype=torch.bool)
        for number, (_, matrix) in enumerate(view.matrices(view.target)):
            present = nonzero_rows(matrix)
            usable = present[known]
            if set(labels[usable].tolist()) < set(labels.tolist()):
                continue
            seen |= present
            scaled, unit = view.once(("scaled", view.target, number), partial(_scaled, matrix, view.target))
            by_variant = _by_class(scaled, unit, known[usable], labels[usable], classes)
            if view.target is Target.GRADIENT and not binary:
                by_variant["axis"] = _axes(unit, known[usable], labels[usable], classes)
            for name, scores in by_variant.items():
                sums[name] = sums.get(name, 0) + scores.double() * present[:, None]
        if not sums:
            raise NotApplicable.expected("an epoch in which a known row of each class has a message", "none")
        unknown = seen & ~knowledge.known_among(view.rows)
        values = {name: s[:, 1] - s[:, 0] if binary else s for name, s in sums.items()}
        return run_scores(view, values.pop("cosine"), unknown, **values)


def _scaled(matrix: Tensor, target: Target) -> tuple[Tensor, Tensor]:
    """A matrix (n, d) over its largest number, float32, and its rows of unit length; an embedding is centred."""
    low, high = matrix.aminmax()
    scaled = matrix.float() / (max(float(high), -float(low)) or 1.0)
    scaled = scaled.sub_(scaled.mean(dim=0)) if target is Target.EMBEDDING else scaled
    return scaled, scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp_min(_SHORTEST)


def _axes(unit: Tensor, known: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean squared cosine with the known rows of each class (n, classes); `_ABSENT` without a known row."""
    squares = (unit @ unit[known].T).square()
    scores = torch.full((len(unit), classes), _ABSENT)
    for code in set(labels.tolist()):
        scores[:, code] = squares[:, labels == code].mean(dim=1)
    return scores


def _by_class(matrix: Tensor, unit: Tensor, known: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """Scores for each class (n, classes) by variant; a class without a known row scores lowest."""
    distance = torch.full((len(matrix), classes), _ABSENT)
    centres = torch.zeros(classes, matrix.shape[1])
    named, apart = sorted(set(labels.tolist())), torch.empty_like(matrix)
    for code in named:
        own = known[labels == code]
        centres[code] = functional.normalize(unit[own].mean(dim=0), dim=0)
        gap = torch.linalg.vector_norm(torch.sub(matrix, matrix[own].mean(dim=0), out=apart), dim=1)
        distance[:, code] = -gap / (float(gap.mean()) or 1.0)
    cosines = unit @ centres.T
    means = torch.full_like(distance, _ABSENT)
    before = None
    means[:, named] = cosines[:, named]
    for _ in range(ROUNDS):
        nearest = cosines.argmax(dim=1)
        if before is not None and torch.equal(nearest, before):
            break  # the centres are the same again
        before = nearest
        sums = torch.zeros_like(centres).index_add_(0, nearest, unit)
        centres = torch.where(sums.any(dim=1, keepdim=True), functional.normalize(sums, dim=1), centres)
        cosines = unit @ centres.T
    return {"cosine": means, "distance": distance, "clusters": cosines}
