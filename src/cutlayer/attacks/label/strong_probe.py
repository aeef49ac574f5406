"""The strong probe: models that are not linear, fitted on the messages of a few rows whose labels are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.few_labels import PENALTIES, both_messages, inputs_of
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores, seen_labels
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.normal_scores import normal_scores
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from sklearn.kernel_approximation import Nystroem

    from cutlayer.problem.task import Task


NEIGHBOURS = 10
COMPONENTS = 64
TREES = 50
"""Half as many trees as usual read the same within 0.002 on a regression of 2,000 rows, in half the time."""


class StrongProbe(HistoryAttack):
    """Score a row by models that find labels where no linear one does.

    The inputs are those of `few_labels`, with all of its known labels. The score is the share of the classes among the
    10 nearest known rows, weighted by the inverse distance; variants are 50 extremely randomised `trees`, and `rbf`, a
    logistic regression on a Nystroem map of the Gaussian kernel whose width is the median distance of the known rows. A
    defence that only bends the boundary between the classes stops the linear probe and none of these. The values of a
    regression are replaced by their normal scores, and predicted by the mean of the same neighbours, by trees, and by a
    ridge regression on the map; the variant `both` are trees on gradients and embeddings together.

    Knows up to 200 labels. Takes 0.3 s for 8,192 rows of 32 columns. The default catalogue has it in regressions alone:
    few other attacks are defined there, and its trees read more of protected gradients than a linear model.

    Reference: Cover and Hart 1967, Nearest neighbor pattern classification; Geurts, Ernst and Wehenkel 2006, Extremely
    randomized trees; Williams and Seeger 2000, Using the Nystroem method to speed up kernel machines. The known labels
    are those of Fu et al. (USENIX Security 2022).
    """

    name = "strong_probe"
    reference = "Cover and Hart 1967; Geurts et al. 2006; Williams and Seeger 2000"
    reads = (Target.EMBEDDING, Target.GRADIENT)
    needs = frozenset({Need.FEW_LABELS})
    tasks = frozenset({"binary", "multiclass", "regression"})
    live = False
    live_tasks = frozenset({"regression"})
    quick = False
    thorough = True
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: There is no such message, or none of known rows of two classes or values.
        """
        inputs, seen = inputs_of(view)
        if not inputs.shape[1]:
            raise NotApplicable.expected(f"{view.target}s that vary over the rows", "none")
        known, labels = seen_labels(view, knowledge, seen)
        if len(torch.unique(labels)) < 2:
            raise NotApplicable.expected(f"{view.target}s of known rows of two labels", f"{len(labels)} of one label")
        models = _models(view.task, *_kernel(inputs[known.numpy()]))
        read = {name: _read(model, inputs, known, labels, view.task) for name, model in models.items()}
        for name, blocks in both_messages(view).items():
            x = np.concatenate(blocks, axis=1)
            read[name] = _read(_models(view.task, *_kernel(x[known.numpy()]))["trees"], x, known, labels, view.task)
        unknown = seen & ~knowledge.known_among(view.rows)
        return run_scores(view, read.pop("neighbours"), unknown, **read)


def _kernel(x: npt.NDArray[np.float64]) -> tuple[int, Nystroem]:
    """Number of neighbours, and the map of the Gaussian kernel, for known rows (m, d)."""
    from sklearn.kernel_approximation import Nystroem

    squares = np.square(x[:, None] - x[None]).sum(axis=2)
    width = float(np.median(squares[squares > 0])) if squares.any() else 1.0
    return min(NEIGHBOURS, len(x)), Nystroem(gamma=1 / width, n_components=min(COMPONENTS, len(x)), random_state=0)


def _models(task: Task, neighbours: int, kernel: Nystroem) -> dict[str, Any]:
    """Estimators by name, of values or of classes."""
    from sklearn import ensemble, linear_model, neighbors
    from sklearn.pipeline import make_pipeline

    nearest, trees = neighbors.KNeighborsClassifier, ensemble.ExtraTreesClassifier
    linear = linear_model.LogisticRegression(C=10.0, max_iter=300)
    if task.kind == "regression":
        nearest, trees = neighbors.KNeighborsRegressor, ensemble.ExtraTreesRegressor
        linear = linear_model.RidgeCV(PENALTIES)
    return {
        "neighbours": nearest(neighbours, weights="distance"),
        "trees": trees(TREES, min_samples_leaf=2, random_state=0),
        "rbf": make_pipeline(kernel, linear),
    }


def _read(model: Any, x: npt.NDArray[np.float64], known: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Scores of all rows by a model of the known ones.

    Args:
        model: A scikit-learn estimator.
        x: Its inputs, (n, d).
        known: Indices of the known rows, int64 (m,).
        labels: Their class codes, int64 (m,), or the values of a regression, float64 (m,).
        task: Kind and classes.

    Returns:
        Probabilities (n, classes), or (n,) of the positives of two classes; or predicted normal scores (n,).
    """
    fitted = x[known.numpy()]
    if task.kind == "regression":
        return torch.from_numpy(model.fit(fitted, normal_scores(labels).numpy()).predict(x))
    model.fit(fitted, labels.numpy())
    values = torch.zeros(len(x), 2 if task.kind == "binary" else task.outputs, dtype=torch.float64)
    values[:, torch.unique(labels)] = torch.from_numpy(model.predict_proba(x))
    return values[:, 1] if task.kind == "binary" else values
