"""The estimators: a classifier and a regressor trained across parties."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cutlayer.config.target import TARGETS
from cutlayer.errors import ConfigError, DataError
from cutlayer.estimator.arguments import refuse_unknown
from cutlayer.estimator.base import VerticalEstimator
from cutlayer.estimator.prediction import Evaluation
from cutlayer.estimator.tables import EVENT, EXPOSURE
from cutlayer.results.quality import at_rate


class VerticalClassifier(ClassifierMixin, VerticalEstimator):  # type: ignore[misc]
    """A classifier trained across parties that hold different columns of the same rows.

    By default it trains the job that `cutlayer init` writes. Where labels are worth 1,000 informative rows, each
    passive party is sent drawn labels, and releases a drawn grade of each row (`protect="both"`). Otherwise it releases
    its encoded columns once, and no message depends on a label (`protect="labels"`): the columns are as good as handed
    over. `release="every_step"` trains bottom models by gradients, as published work does. Unless `protections` stop
    them, gradients reveal the labels.

    Args:
        active: Name of the party that holds the labels; by default the first of `columns`.
        columns: Columns of each party, where `X` is one DataFrame or array: lists of names or numbers, slices, and
            `rest` for the columns of no other party. scikit-learn's own tools (`cross_val_score`, `GridSearchCV`,
            `Pipeline`, `CalibratedClassifierCV`) pass one table. `None` where `X` has a table for each party.
        protect: What `cutlayer init --protect` takes: `labels`, `columns`, `both`, `proof`, `nothing`, or `auto`,
            which is `both` where the rows suffice and else `labels`. It is for a fit without `release`, `protections`
            and `bottom`, which say the same in full; beside these, or beside `bottom_fit`, `auto` decides nothing.
        bottom: Bottom models as in a job file, for instance `{"kind": "mlp", "hidden": [64, 32]}`; it needs a word on
            `release`, which says what trains them. `None` is a grade, or a sketch of the columns, of a party that
            releases once, and otherwise the model of a job.
        top: Top model as in a job file; `None` is `{"kind": "auto"}`, the best of several kinds by cross-validation,
            where all passive parties release once and `bottom` is `None`.
        features: Which columns of a party are features, and their encoding, by party as in a job file, for instance
            `{"telco": {"numbers": {"scale": "robust"}}}`.
        protections: Settings such as `LabelDPConfig(eps=1.0)`; each of a list goes to the side that it belongs to, a
            mapping names the party. `BudgetConfig`, by party, limits what the rows of a party may cost, and
            `LabelFreeConfig` demands that no message depends on a label. `None` leaves it to `protect`. With `release`
            it is `LabelFreeConfig` where all passive parties release once, and otherwise, as an empty list, none.
        attacks: Names of attacks, or `auto`.
        compare: Baselines to train: `undefended`, `each`, `centralised`, `alone`, `retrained`, `finetuned`,
            `boosting`.
        epochs: Number of epochs at most; `auto` as in a job file. This and the next three, and `patience`, are settings
            of training by steps, and need a word on `release`.
        batch_size: Number of rows of a step; `auto` as in a job file.
        lr: Learning rate, of Adam unless `optimizer` names another kind.
        optimizer: Further settings of the optimiser as in a job file, for instance
            `{"kind": "adamw", "weight_decay": 1e-4}`.
        class_weight: `balanced` gives every class the same part in the loss; a mapping has the weight of each class, 1
            where it has none, and multiplies `sample_weight`.
        release: `once` releases each row of the passive parties a single time, before training; `every_step` trains
            their models by gradients; by party if a mapping. `None` leaves it to `protect`.
        bottom_fit: Fit of the bottom models of passive parties that release once, by party, for instance
            `{"telco": {"kind": "sketch"}}`.
        patience: Stop after so many epochs without a better one; `None` stops early only where `epochs` is `auto`.
        validation: Share of the rows that choose the epoch.
        test: Share of the rows that are reported.
        stratify: Whether all parts have the same share of each class; not with `label_dp` or `label_free`.
        split_by: Column of the active party's table, no feature then; the rows with its largest values, such as the
            newest, are reported, and those before them choose the epoch.
        split_public: Whether partners may know the order of the rows by that column, whatever it shows of the labels;
            `label_dp` and `label_free` need it, and their guarantees are given that order.
        threads: Threads of the tensor library, or `auto`.
        seed: Seed of the split and the schedule.
        run_dir: Folder in which the run folder stays, as `run_dir/run`; `None` uses a temporary folder.
        secrets: Folder of the parties' long-lived secrets, made if absent: with it, `label_dp` draws each row's label
            once over all fits; a fit to other labels, such as those of another fold, is refused without
            `changed_labels="redraw"`. `None` makes new ones for every fit, and the eps of the fits add up.
        key: 32 bytes for all noise and all initial weights, so that both repeat: reproducible, not private. Without it
            each party draws both under keys of its own, and two fits differ.
        predictions: How many predictions are planned: calls of `predict`, `predict_proba`, `score`, `evaluate` and
            `finetune_top` on this fit, each of which releases every row of its tables once more. Noise that is counted
            (`DPEmbeddingConfig`) is drawn for so many, and further calls are refused.
        coverage: Share of new rows whose label is to lie in the interval of `predict_interval`, or the set of
            `predict_set`, 0.5 to 0.999; 0 for none. It needs a top model that is fitted at once, as by default, and
            the share `validation` is left out of its fit.

    Attributes:
        protect_: What was protected, in a word of `protect`; `None` where other arguments say it.
        protect_reason_: How, and why that was chosen, as `init` prints it; empty where it was asked for.
        report_: The run's `Report`; a notebook displays it as a page.
        classes_: As in scikit-learn.
        folder_: The run folder.
    """

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "binary" if len(np.unique(labels)) <= 2 else "multiclass"

    def _codes(self, labels: npt.NDArray[Any]) -> Tensor:
        strangers = [label for label in np.unique(labels) if label not in set(self.classes_)]
        if strangers:
            wanted = f"labels among {', '.join(map(str, self.classes_))}"
            raise DataError.expected(wanted, ", ".join(map(str, strangers[:3])), "only these were trained on")
        return torch.from_numpy(np.searchsorted(self.classes_, labels).astype(np.int64))

    def predict_proba(self, X: Any, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Probabilities (n, classes) of rows given by all parties, from what each releases through its protections.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            absent: Passive parties that no longer answer.

        Raises:
            ConfigError: A party counts its releases, and no `predictions` were planned.
            BudgetExceeded: All planned predictions have been made.
            CutlayerError: Bad input; says which party and what to do.
        """
        return self._predict(X, absent, protected=True)

    def predict_proba_unprotected(self, X: Any, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Probabilities (n, classes) from bare embeddings, which no protection touched and nothing counts.

        They show what the models could do if one organisation held all columns.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            absent: Passive parties that no longer answer.
        """
        return self._predict(X, absent, protected=False)

    def predict(self, X: Any, absent: Collection[str] = (), threshold: float | None = None) -> npt.NDArray[Any]:
        """The likeliest class of each row; arguments as of `predict_proba`.

        With a `threshold` of two classes, the positive one (of a job, `positive`; else the greater label) is predicted
        from that probability on.
        """
        predicted = self._predict(X, absent, protected=True)
        codes = predicted.argmax(axis=1)
        if threshold is not None:
            positive = self._positive()
            codes = np.where(predicted[:, positive] >= threshold, positive, 1 - positive)
        chosen: npt.NDArray[Any] = self.classes_[codes]
        return chosen

    def predict_set(self, X: Any, absent: Collection[str] = ()) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The likeliest class of each row, (n,), and the set of classes in which its label is, bool (n, classes).

        Both are of one release. Arguments and errors as of `predict_proba`.

        Raises:
            ConfigError: The fit had no `coverage`.

        Guarantee: as `VerticalRegressor.predict_interval`.
        """
        predicted, sets = self._further(X, absent)
        return self.classes_[predicted.argmax(axis=1)], sets > 0

    def choose_threshold(self, *, rate: float | None = None, cost: tuple[float, float] | None = None) -> float:
        """Probability of the positive class from which to predict it, by the held-out rows of the fit.

        No row is released for it. On the rows that it was chosen on it does slightly better than on new ones.

        Args:
            rate: Share of the rows that can be treated, in (0, 1]: the threshold that selects the most rows, and no
                more than these.
            cost: Cost of a false positive and of a false negative, above 0: the threshold of the least cost.

        Raises:
            ConfigError: Not exactly one of both, or out of range; more than two classes; or held-out rows of one class.
        """
        check_is_fitted(self, "folder_")
        points = self.report_.quality.curve
        if (rate is None) == (cost is None):
            raise ConfigError.expected("rate or cost", "both" if rate is not None else "neither", "name one of them")
        self._positive()
        if not points:
            raise ConfigError.expected("held-out rows of both classes", "none", "fit with a larger share `test`")
        nobody = math.nextafter(points[0].threshold, math.inf)
        if rate is not None:
            if not 0 < rate <= 1:
                raise ConfigError.expected("rate in (0, 1]", rate, "0.05 selects 5 % of the rows")
            chosen = at_rate(points, rate)
            return nobody if chosen is None else chosen.threshold
        false_positive, false_negative = cost or (0.0, 0.0)
        if not (false_positive > 0 and false_negative > 0):
            raise ConfigError.expected("costs above 0", cost, "(1, 5): a false negative costs five times as much")
        share = points[-1].precision  # all rows are selected: the share of positives

        def expected(recall: float, false_positive_rate: float) -> float:
            return share * (1 - recall) * false_negative + (1 - share) * false_positive_rate * false_positive

        options = [(expected(point.recall, point.false_positive_rate), point.threshold) for point in points]
        return min([(expected(0, 0), nobody), *options])[1]

    def _positive(self) -> int:
        """Code of the positive class.

        Raises:
            ConfigError: The task has other classes than two.
        """
        if self.report_.task.kind != "binary":
            raise ConfigError.expected("two classes for a threshold", len(self.classes_), "use predict_proba")
        return self.report_.task.positive


@refuse_unknown
@dataclass(eq=False, repr=False)
class VerticalRegressor(RegressorMixin, VerticalEstimator):  # type: ignore[misc]
    """A regressor trained across parties; parameters and attributes as in `VerticalClassifier`.

    Args:
        task: What the numbers are: `regression`, or as in a job `count`, `amount`, `severity` or `survival`, which are
            learned on the log link by a top model that is fitted at once, as by default.
    """

    _: KW_ONLY
    task: str = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, event: Any = None) -> Self:
        """Train on the parties' tables; further arguments and errors as of `VerticalClassifier.fit`.

        `exposure` and `event` are known to the active party alone. In a search or cross-validation of scikit-learn they
        are routed as `sample_weight` is, by `set_fit_request` and `set_score_request`.

        Args:
            X: Tables.
            y: Values, counts, or times (n,).
            sample_weight: Weights of the rows (n,).
            exposure: Exposures (n,), above 0, of a task `count` or `amount`; what is predicted is the rate by unit.
            event: Of a task `survival` 1 where the event happened at the time in `y`, 0 where the row was censored.
        """
        return self._fit(X, y, sample_weight, _given(exposure, event))

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, event: Any = None) -> float:
        """The metric of the task: R², D², of rates by exposure, or the concordance of times.

        Args:
            X: Tables as in `fit`.
            y: Labels (n,).
            sample_weight: Weights of the rows in R², (n,).
            exposure: As in `fit`.
            event: As in `fit`.

        Raises:
            ConfigError: Weights with another metric than R².
            CutlayerError: As `evaluate`.
        """
        if self.task == "regression":
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ConfigError.expected("no sample_weight in the score of counts, amounts and times", "some")
        return self.evaluate(X, y, exposure=exposure, event=event).metrics[self.models_.task.metric]

    def evaluate(
        self, X: Any, y: Any, absent: Collection[str] = (), exposure: Any = None, event: Any = None
    ) -> Evaluation:
        """As `VerticalClassifier.evaluate`, with `exposure` and `event` as in `fit`."""
        return self._evaluation(X, y, absent, protected=True, further=_given(exposure, event))

    def evaluate_unprotected(
        self, X: Any, y: Any, absent: Collection[str] = (), exposure: Any = None, event: Any = None
    ) -> Evaluation:
        """As `VerticalClassifier.evaluate_unprotected`, with `exposure` and `event` as in `fit`."""
        return self._evaluation(X, y, absent, protected=False, further=_given(exposure, event))

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        known = ("regression", *(target for target in TARGETS if target != "ranking"))  # whose groups only a job names
        if self.task not in known:
            raise ConfigError.expected(f"task as one of {', '.join(known)}", repr(self.task)[:80])
        return self.task

    def _codes(self, labels: npt.NDArray[Any]) -> Tensor:
        try:
            return torch.from_numpy(labels.astype(np.float32))
        except (TypeError, ValueError):
            raise DataError.expected("numbers in y", labels.dtype) from None

    def predict(self, X: Any, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Predicted values (n,), from what each party releases through its protections.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            absent: Passive parties that no longer answer.

        Raises:
            ConfigError: A party counts its releases, and no `predictions` were planned.
            BudgetExceeded: All planned predictions have been made.
            CutlayerError: Bad input; says which party and what to do.
        """
        return self._predict(X, absent, protected=True)

    def predict_interval(
        self, X: Any, absent: Collection[str] = ()
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Predicted values (n,), and the lower and upper bounds of their intervals, (n, 2); both are of one release.

        `predict` returns one array, which scikit-learn's tools rely on. Arguments and errors as of `predict`.

        Raises:
            ConfigError: The fit had no `coverage`.

        Guarantee: of new rows the share `coverage` or more have their label in the interval, on average over rows, if
        they are exchangeable with the validation rows; not where a party is absent.
        """
        return self._further(X, absent)

    def predict_survival(self, X: Any, times: npt.ArrayLike, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Probability of no event up to each time, (n, k), of a task `survival`; else as `predict`.

        Args:
            X: Tables as in `fit`.
            times: Times (k,).
            absent: As in `predict`.

        Raises:
            ConfigError: Another task.
        """
        check_is_fitted(self, "folder_")
        task = self.models_.task
        if task.target != "survival":
            raise ConfigError.expected("task='survival'", repr(self.task))
        return task.hazard.survival(self.predict(X, absent), np.asarray(times, dtype=np.float64))

    def predict_unprotected(self, X: Any, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Predicted values (n,) from bare embeddings, which no protection touched and nothing counts.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            absent: Passive parties that no longer answer.
        """
        return self._predict(X, absent, protected=False)


def _given(exposure: Any, event: Any) -> dict[str, Any]:
    return {name: values for name, values in ((EXPOSURE, exposure), (EVENT, event)) if values is not None}
