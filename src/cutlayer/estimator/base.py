"""Base of the estimators: fit trains a whole job, predict and evaluate answer with the parties that are present."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cutlayer.config import Job
from cutlayer.config.load import load_closed_job
from cutlayer.config.wording import did_you_mean
from cutlayer.consent import allowed
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.estimator.arguments import arguments_named, columns_named, refuse_unknown
from cutlayer.estimator.job import job_of, notes_of_labels
from cutlayer.estimator.notebook_report import for_notebook
from cutlayer.estimator.prediction import Evaluation, embed, encode
from cutlayer.estimator.privacy import Protections, modules_of_plugins
from cutlayer.estimator.saved import classes_of, columns_of, parameters_of, read_record, save, write_record
from cutlayer.estimator.scratch import Scratch
from cutlayer.estimator.single_table import Columns, divide
from cutlayer.estimator.tables import (
    EVENT,
    EXPOSURE,
    LABEL,
    WEIGHT,
    Tables,
    check_mapping,
    check_order,
    check_rows,
    labels_of,
    numbers_of,
    read_tables,
    weights_of,
    with_columns,
)
from cutlayer.estimator.validation import checked, checked_key, value_errors
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models import modules_of
from cutlayer.report.build import build_report
from cutlayer.results.report import Report
from cutlayer.serving import prediction_releases
from cutlayer.serving.models import TrainedModels
from cutlayer.training.finetuning import DEFAULT_EPOCHS, Labelled, tune_top
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.model_record import ModelRecord, record_path


class HiddenKey(bytes):
    """A key that no representation shows; scikit-learn prints the parameters of an estimator, and notebooks do."""

    def __repr__(self) -> str:
        return "<hidden>"

    __str__ = __repr__


@refuse_unknown
@dataclass(eq=False, repr=False)
class VerticalEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the classifier and the regressor; `VerticalClassifier` documents the parameters."""

    active: str | None = None
    _: KW_ONLY
    columns: Columns | None = None
    protect: str = "auto"
    bottom: Mapping[str, Any] | None = None
    top: Mapping[str, Any] | None = None
    features: Mapping[str, Mapping[str, Any]] | None = None
    protections: Protections | None = None
    attacks: Literal["auto"] | Sequence[str] = "auto"
    compare: Sequence[str] = ()
    epochs: Literal["auto"] | int = "auto"
    batch_size: Literal["auto"] | int = "auto"
    lr: float = 1e-3
    optimizer: Mapping[str, Any] | None = None
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None
    release: str | Mapping[str, str] | None = None
    bottom_fit: Mapping[str, Mapping[str, Any]] | None = None
    patience: int | None = None
    validation: float = 0.1
    test: float = 0.1
    stratify: bool = False
    split_by: str | None = None
    split_public: bool = False
    threads: Literal["auto"] | int = "auto"
    seed: int = 0
    run_dir: str | Path | None = None
    secrets: str | Path | None = None
    key: bytes | None = field(default=None, repr=False)
    predictions: int = 0
    coverage: float = 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; the key is hidden from representations, which scikit-learn makes of these."""
        found: dict[str, Any] = super().get_params(deep)
        return found | {"key": HiddenKey(self.key) if type(self.key) is bytes else self.key}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the parties' tables.

        Args:
            X: DataFrame or array of each party, by name; the i-th rows of all belong together. `None` is the table of
                an active party that has labels alone. With `columns`, one DataFrame or array of all columns.
            y: Labels (n,), known to the active party alone.
            sample_weight: Weights of the rows in the loss (n,), 0 or more, known to the active party alone. Metrics and
                attacks count every row once.

        Raises:
            CutlayerError: Bad input; says which party and what to do.
        """
        return self._fit(X, y, sample_weight, {})

    def _fit(self, X: Any, y: Any, sample_weight: Any, further: Mapping[str, Any]) -> Self:
        """Train, with `further` columns of the label: exposures or events (n,), by their name."""
        active = self.active or next(iter(self.columns or ()), "")
        with value_errors(arguments_named, lambda text: columns_named(text, active)):
            check_order({**self._tables(X), "y": y, "sample_weight": sample_weight, **further})
            inputs, labels = self._inputs(X, y)
            added = {name: numbers_of(name, values, len(labels)) for name, values in further.items()}
            if (weights := weights_of(sample_weight, labels, self.class_weight)) is not None:
                added[WEIGHT] = weights
            active = self._active(inputs)
            names = [active, *(name for name in inputs if name != active)]
            tables = read_tables(inputs, [name for name in names if name != active or inputs[name] is not None])
            kind = self._kind(labels)
            counts = () if kind not in ("binary", "multiclass") else np.unique(labels, return_counts=True)[1].tolist()
            with self._consent():
                job, filled = job_of(self, tables, names, kind, added, counts)
            for note in notes_of_labels(job, labels):
                warnings.warn(arguments_named(note), stacklevel=3)
            check_rows(tables, len(labels))
            tables[job.active] = with_columns(tables.get(job.active), {LABEL: labels, **added})
            key, (out, scratch) = checked_key(self.key), self._out()
            with torch.random.fork_rng(devices=[]), self._consent():
                keys = Keys(Path(self.secrets or out / "keys"), key)
                folder = execute(job, out / "run", Options(keys, tables=tables), Progress())
                self._fitted(job, folder, key, scratch)
            self.protect_, self.protect_reason_ = filled.protect, filled.reason
            if job.task != "regression":
                self.classes_ = np.unique(labels)
        columns, count = getattr(self, "feature_names_in_", None), getattr(self, "n_features_in_", None)
        write_record(folder, self.columns, columns, count)
        return self

    @classmethod
    def load(cls, run: str | Path, key: bytes | None = None) -> Self:
        """Load a trained model from the folder of a finished run, or from what `save` wrote.

        The folder is used in place: predictions are counted there.

        Args:
            run: Folder of a run with all parties in one process; of an estimator with a `run_dir`, its folder `run`.
            key: Key of a run with a supplied key, 32 bytes.

        Raises:
            CutlayerError: No finished run with all parties' parts, or one of another task.
        """
        folder = RunFolder.open(Path(run))
        job, record = load_closed_job(folder.path / "job.yaml"), read_record(folder)
        if (job.task == "regression") != issubclass(cls, RegressorMixin):
            other = "VerticalRegressor" if job.task == "regression" else "VerticalClassifier"
            raise ConfigError.expected(f"a run that {cls.__name__} predicts with", f"task {job.task}", f"use {other}")
        model = cls(**parameters_of(job), columns=columns_of(record), key=checked_key(key))
        model._fitted(job, folder, key, None)
        if record.count is not None:
            model.n_features_in_ = record.count
        if record.names is not None:
            model.feature_names_in_ = np.array(record.names, dtype=object)
        if job.task != "regression":
            model.classes_ = classes_of(ModelRecord.read(record_path(folder, job.active)))
        return model

    def save(self, path: str | Path) -> None:
        """Save what predictions need into a folder, from which `load` and `cutlayer predict` use it.

        The folder holds what is private to each party: fitted encoders, weights, and the keys of its noise. The count
        of releases is shared with this estimator. Records for an audit stay behind, and so do the long-lived secrets.

        Args:
            path: New or empty folder.

        Raises:
            RunFolderError: The folder is not empty, or cannot be made.
            ConfigError: Top models were fine-tuned, which the folder has no place for.
        """
        check_is_fitted(self, "folder_")
        if self.models_.tuned:
            absent_parties = " and ".join(", ".join(sorted(names)) for names in self.models_.tuned)
            raise ConfigError.expected(
                "a model as it was fitted", f"top models fine-tuned without {absent_parties}", "load and tune"
            )
        save(self.job_, self.folder_, Path(path), None if self._scratch is None else self._scratch.path)

    def _fitted(self, job: Job, folder: RunFolder, key: bytes | None, scratch: Scratch | None) -> None:
        """Take the results of a run."""
        self.report_ = for_notebook(build_report(folder.path))
        self.models_ = TrainedModels.load(job, folder)
        self.encoders_ = self.models_.encoders
        self.folder_ = folder
        self.job_ = job
        self._supplied = key
        self._scratch = scratch

    def _tables(self, X: Any) -> Tables:
        """Given tables, by their names in an error: those by party, or one table as `X`."""
        if self.columns is not None:
            return {"X": X}
        return X if isinstance(X, Mapping) else {}

    def _inputs(self, X: Any, y: Any) -> tuple[Tables, npt.NDArray[Any]]:
        """Tables by party, and labels.

        Raises:
            ConfigError: The active party has no table.
            DataError: No tables or labels.
        """
        if self.columns is None:
            labels = labels_of(y)
            check_mapping(X)
            self._check_active(X)
            return X, labels
        table, labels = checked(self, X, y)
        self._check_active(self.columns)
        tables = divide(table, self.columns)
        without = [name for name in tables if tables[name] is None and name != self._active(tables)]
        if without:
            got = f"none of {table.shape[1]} feature(s)"
            raise ConfigError.expected(f"columns of {without[0]}, a passive party", got, "give it some or leave it out")
        return tables, labels

    def _check_active(self, named: Mapping[str, Any]) -> None:
        """Raise unless the active party is among the parties of the tables or columns."""
        active = self._active(named)
        if active not in named:
            near = did_you_mean(active, [*map(str, named)]).removeprefix("; ")
            remedy = near or f"write {active!r}: None for a party that has labels alone"
            got = ", ".join(map(str, named)) or "none"
            raise ConfigError.expected(f"a table of {active}, the active party", f"tables of {got}", remedy)

    def _active(self, named: Mapping[str, Any]) -> str:
        if isinstance(self.active, str):
            return self.active
        if self.active is not None:
            got = type(self.active).__name__
            raise ConfigError.expected("`active` as the name of the party that holds the labels", got)
        if self.columns is None:
            raise ConfigError.expected("the name of the active party, which holds the labels", "none", "set `active`")
        return next(iter(named), "")

    def _tables_by_party(self, X: Any) -> Tables:
        """The tables by party of rows to predict."""
        return X if self.columns is None else divide(checked(self, X), self.columns)

    def audit(self, attacks: Sequence[str] = ()) -> Report:
        """Attack the recorded transcript again; updates and returns `report_`.

        Args:
            attacks: Names; those of the fit where empty.
        """
        check_is_fitted(self, "folder_")
        with self._consent():
            audit_again(self.folder_, tuple(attacks))
        self.report_ = for_notebook(build_report(self.folder_.path))
        return self.report_

    def evaluate(self, X: Any, y: Any, absent: Collection[str] = ()) -> Evaluation:
        """Metrics of the answers to rows with known labels; each call is a prediction, as `predictions` counts them.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            y: Labels (n,).
            absent: Passive parties that no longer answer.

        Raises:
            CutlayerError: An unknown party, nobody left with features, labels that were not trained on, or no
                prediction left.
        """
        return self._evaluation(X, y, absent, protected=True)

    def evaluate_unprotected(self, X: Any, y: Any, absent: Collection[str] = ()) -> Evaluation:
        """The same on bare embeddings, which no protection touched and nothing counts.

        It shows what the models could do if one organisation held all columns, and says nothing of a protected run.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            y: Labels (n,).
            absent: Passive parties that no longer answer.

        Raises:
            CutlayerError: An error of `evaluate`; no planned prediction is used up.
        """
        return self._evaluation(X, y, absent, protected=False)

    def _evaluation(
        self, X: Any, y: Any, absent: Collection[str], *, protected: bool, further: Mapping[str, Any] | None = None
    ) -> Evaluation:
        check_is_fitted(self, "folder_")
        absent_parties = self.models_.absent_parties(absent)
        rows = self._labelled(X, y, absent_parties, protected=protected, further=further or {})
        metrics = self.models_.task.evaluate(self.models_.answer(rows.embeddings, absent_parties), rows.labels)
        contributed = tuple(name for name in self.encoders_ if name not in absent_parties)
        return Evaluation(metrics, contributed, absent_parties, len(rows.labels))

    def finetune_top(self, X: Any, y: Any, absent: Collection[str], epochs: int = DEFAULT_EPOCHS) -> Self:
        """Train the top model on with the remaining parties after a departure; all bottom models stay as they are.

        From then on `predict` and `evaluate` use the result for exactly these absent parties. It starts from the top
        model of the fit and ends with the last epoch; all rows train. The remaining parties release the rows once more,
        as for one prediction.

        Args:
            X: Tables as in `fit`; an absent party's need not be given.
            y: Labels (n,).
            absent: Passive parties that have left.
            epochs: Number of epochs, 1 or more.

        Raises:
            CutlayerError: An error of `evaluate`, or fewer than 1 epoch.
        """
        check_is_fitted(self, "folder_")
        absent_parties = self.models_.absent_parties(absent, epochs)
        top = copy.deepcopy(self.models_.top)
        labelled = self._labelled(X, y, absent_parties, protected=True)
        tune_top(top, labelled, absent_parties, self.models_.task, self.job_.train, epochs)
        self.models_.tuned[frozenset(absent_parties)] = top
        return self

    def __sklearn_tags__(self) -> Any:
        """Tags of the accepted input, for scikit-learn's tools."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.key is None
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.two_d_array = self.columns is not None
        tags.input_tags.dict = self.columns is None
        return tags

    def _consent(self) -> AbstractContextManager[None]:
        """Naming a class in Python is consent to its import."""
        return allowed(*modules_of({"bottom": self.bottom, "top": self.top}), *modules_of_plugins(self.protections))

    def _out(self) -> tuple[Path, Scratch | None]:
        """Folder of the run; a temporary folder is removed together with the last copy of this estimator."""
        if self.run_dir is not None:
            if (Path(self.run_dir) / "run").exists():
                raise RunFolderError(f"{self.run_dir} holds a run already; choose another run_dir, or remove it")
            return Path(self.run_dir), None
        scratch = Scratch()
        return scratch.path, scratch

    @abstractmethod
    def _kind(self, labels: npt.NDArray[Any]) -> str:
        """The kind of task these labels make."""

    @abstractmethod
    def _codes(self, labels: npt.NDArray[Any]) -> Tensor:
        """Labels as the task's loss and metrics take them."""

    def _predict(self, X: Any, absent: Collection[str], *, protected: bool) -> npt.NDArray[np.float64]:
        check_is_fitted(self, "folder_")
        absent_parties = self.models_.absent_parties(absent)
        with value_errors():
            stores = encode(self.models_, self._tables_by_party(X), absent_parties)
        logits = self.models_.answer(self._embed(stores, protected=protected), absent_parties)
        return self.models_.task.predict(logits.double()).numpy()

    def _embed(self, stores: Mapping[str, Store], *, protected: bool) -> dict[str, Tensor]:
        """Embeddings as the parties release them for a prediction, or bare ones."""
        job, models = self.job_, self.models_
        widths = {name: models.widths[name] for name in job.passives if name in stores}
        with self._consent():
            releases = prediction_releases(job, self.folder_, widths, self._supplied) if protected else {}
            return embed(models, stores, releases)

    def _further(self, X: Any, absent: Collection[str]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Predictions of one release, and their intervals or sets of classes.

        Raises:
            ConfigError: The fit had no `coverage`.
        """
        check_is_fitted(self, "folder_")
        if not self.models_.task.coverage:
            raise ConfigError.expected("a fit with coverage", "none", "such as coverage=0.9")
        predicted = self._predict(X, absent, protected=True)
        return predicted, self.models_.task.further_values(predicted)

    def _labelled(
        self,
        X: Any,
        y: Any,
        absent_parties: Collection[str],
        *,
        protected: bool,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> Labelled:
        check_order({**self._tables(X), "y": y})
        labels = labels_of(y)
        stores = encode(self.models_, self._tables_by_party(X), absent_parties)
        counts = {len(labels), *(store.rows for store in stores.values())}
        if len(counts) > 1:
            got = ", ".join(f"{count:,}" for count in sorted(counts))
            raise DataError.expected("as many labels in y as rows", got)
        owner = self.job_.parties[self.job_.active]
        for name, stated in ((EXPOSURE, owner.exposure), (EVENT, owner.event)):
            if (name in further) != (stated is not None):
                wanted, got = ("no ", "some") if stated is None else ("", "none")
                raise DataError.expected(f"{wanted}{name}, as in fit", got)
        codes = self._codes(labels)
        for name, values in further.items():
            second = torch.from_numpy(numbers_of(name, values, len(labels)).astype(np.float32))
            codes = torch.stack([codes / second if name == EXPOSURE else codes, second], dim=1)
        return Labelled(self._embed(stores, protected=protected), codes)
