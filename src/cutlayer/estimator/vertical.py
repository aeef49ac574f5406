"""The estimators: fit trains a whole job, predict and evaluate answer with the parties that are present."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.estimator.prediction import Evaluation, embed, encode
from cutlayer.estimator.privacy import Protections, privacy_of
from cutlayer.estimator.tables import LABEL, Tables, check_mapping, check_rows, labels_of, read, with_labels
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.execute import Options, Progress, execute
from cutlayer.models import allowed_models, modules_of
from cutlayer.report import Report, build
from cutlayer.serving import servings
from cutlayer.serving.models import Models
from cutlayer.training.finetuning import EPOCHS, Labelled, tune
from cutlayer.training.keys import LENGTH
from cutlayer.training.together import Keys


class _Vertical(BaseEstimator):  # type: ignore[misc]
    """Base class of the classifier and the regressor, which document the parameters."""

    def __init__(
        self,
        active: str,
        *,
        bottom: Mapping[str, Any] | None = None,
        top: Mapping[str, Any] | None = None,
        protections: Protections = (),
        attacks: Literal["auto"] | Sequence[str] = "auto",
        compare: Sequence[str] = (),
        epochs: int = 10,
        batch_size: int = 256,
        lr: float = 1e-3,
        patience: int | None = None,
        validation: float = 0.1,
        test: float = 0.1,
        threads: Literal["auto"] | int = "auto",
        seed: int = 0,
        run_dir: str | Path | None = None,
        secrets: str | Path | None = None,
        key: bytes | None = None,
        predictions: int = 0,
    ) -> None:
        self.active = active
        self.bottom = bottom
        self.top = top
        self.protections = protections
        self.attacks = attacks
        self.compare = compare
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.patience = patience
        self.validation = validation
        self.test = test
        self.threads = threads
        self.seed = seed
        self.run_dir = run_dir
        self.secrets = secrets
        self.key = key
        self.predictions = predictions

    def fit(self, X: Tables, y: Any) -> Self:
        """Train on the parties' tables.

        Args:
            X: DataFrame or array of each party, by name; the i-th rows of all belong together. The active party may be
                left out if it has no features.
            y: Labels (n,), known to the active party alone.

        Raises:
            CutlayerError: bad input; says which party and what to do.
        """
        labels = labels_of(y)
        job = self._job(X, labels)
        tables = read(X, [name for name in job.parties if name in X])
        check_rows(tables, len(labels))
        tables[job.active] = with_labels(tables.get(job.active), labels)
        key, out = _checked_key(self.key), self._out()
        with torch.random.fork_rng(devices=[]), self._consent():
            keys = Keys(Path(self.secrets or out / "keys"), key)
            folder = execute(job, out / "run", Options(keys, tables=tables), Progress())
            self.folder_, self.job_ = folder, job
            self.report_ = build(folder.path)
            if job.task != "regression":
                self.classes_ = np.unique(labels)
            self.models_ = Models.load(job, folder)
            self.encoders_ = self.models_.encoders
            self._supplied = key
        return self

    def audit(self, attacks: Sequence[str] = ()) -> Report:
        """Attack the recorded transcript again; updates and returns `report_`.

        Args:
            attacks: names; those of the fit where empty.
        """
        check_is_fitted(self, "folder_")
        with self._consent():
            audit_again(self.folder_, tuple(attacks))
        self.report_ = build(self.folder_.path)
        return self.report_

    def evaluate(self, X: Tables, y: Any, absent: Collection[str] = ()) -> Evaluation:
        """Metrics of the answers to rows with known labels; each call is a prediction, as `predictions` counts them.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            y: labels (n,).
            absent: passive parties that no longer answer.

        Raises:
            CutlayerError: an unknown party, nobody left with features, labels that were not trained on, or no
                prediction left.
        """
        return self._evaluation(X, y, absent, protected=True)

    def evaluate_unprotected(self, X: Tables, y: Any, absent: Collection[str] = ()) -> Evaluation:
        """The same on bare embeddings, which no protection touched and nothing counts.

        It shows what the models could do if one organisation held all columns, and says nothing of a protected run.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            y: labels (n,).
            absent: passive parties that no longer answer.

        Raises:
            CutlayerError: an error of `evaluate`; no planned prediction is used up.
        """
        return self._evaluation(X, y, absent, protected=False)

    def _evaluation(self, X: Tables, y: Any, absent: Collection[str], *, protected: bool) -> Evaluation:
        check_is_fitted(self, "folder_")
        gone = self.models_.absent(absent)
        rows = self._labelled(X, y, gone, protected=protected)
        metrics = self.models_.task.evaluate(self.models_.answer(rows.embeddings, gone), rows.labels)
        contributed = tuple(name for name in self.encoders_ if name not in gone)
        return Evaluation(metrics, contributed, gone, len(rows.labels))

    def finetune_top(self, X: Tables, y: Any, absent: Collection[str], epochs: int = EPOCHS) -> Self:
        """Train the top model on with the remaining parties after a departure; all bottom models stay as they are.

        From then on `predict` and `evaluate` use the result for exactly these absent parties. It starts from the top
        model of the fit and ends with the last epoch; all rows train. The remaining parties release the rows once more,
        as for one prediction.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            y: labels (n,).
            absent: passive parties that have left.
            epochs: number of epochs, 1 or more.

        Raises:
            CutlayerError: an error of `evaluate`, or fewer than 1 epoch.
        """
        check_is_fitted(self, "folder_")
        gone = self.models_.absent(absent, epochs)
        top = copy.deepcopy(self.models_.top)
        tune(top, self._labelled(X, y, gone, protected=True), gone, self.models_.task, self.job_.train, epochs)
        self.models_.tuned[frozenset(gone)] = top
        return self

    def _consent(self) -> AbstractContextManager[None]:
        """Naming a class in Python is consent to its import."""
        return allowed_models(*modules_of({"bottom": self.bottom, "top": self.top}))

    def _out(self) -> Path:
        """Folder of the run; a temporary folder is removed together with this estimator."""
        if self.run_dir is not None:
            if (Path(self.run_dir) / "run").exists():
                raise RunFolderError(f"{self.run_dir} holds a run already; choose another run_dir, or remove it")
            return Path(self.run_dir)
        scratch = tempfile.mkdtemp(prefix="cutlayer-")
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        return Path(scratch)

    def _job(self, tables: Tables, labels: npt.NDArray[Any]) -> Job:
        check_mapping(tables)
        names = [self.active, *(name for name in tables if name != self.active)]
        privacy = privacy_of(self.protections, self.active, names)
        parties: dict[str, Any] = {
            name: {"role": "passive", "privacy": privacy[name], "serving": self.predictions} for name in names
        }
        owner = {"role": "active", "label": LABEL, "audit": {"attacks": self.attacks}}
        parties[self.active] = {"privacy": privacy[self.active], **owner}
        if self.active not in tables:
            parties[self.active]["features"] = {"include": "none"}
        model = {key: value for key, value in (("bottom", self.bottom), ("top", self.top)) if value is not None}
        train = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "optimizer": {"kind": "adam", "lr": self.lr},
            "seed": self.seed,
            "threads": self.threads,
            "split": {"test": self.test, "validation": self.validation},
            "early_stop": None if self.patience is None else {"patience": self.patience},
        }
        raw = {"task": self._kind(labels), "parties": parties, "model": model, "train": train, "compare": self.compare}
        return validated(Job, raw, type(self).__name__)

    @abstractmethod
    def _kind(self, labels: npt.NDArray[Any]) -> str:
        """The kind of task these labels make."""

    @abstractmethod
    def _codes(self, labels: npt.NDArray[Any]) -> Tensor:
        """Labels as the task's loss and metrics take them."""

    def _predict(self, X: Tables, absent: Collection[str], *, protected: bool) -> npt.NDArray[np.float64]:
        check_is_fitted(self, "folder_")
        gone = self.models_.absent(absent)
        stores = encode(self.models_, X, gone)
        logits = self.models_.answer(self._embed(stores, protected=protected), gone)
        predicted: npt.NDArray[np.float64] = self.models_.task.predict(logits.double()).numpy()
        return predicted

    def _embed(self, stores: Mapping[str, Store], *, protected: bool) -> dict[str, Tensor]:
        """Embeddings as the parties release them for a prediction, or bare ones."""
        job, models = self.job_, self.models_
        widths = {name: models.widths[name] for name in job.passives if name in stores}
        return embed(models, stores, servings(job, self.folder_, widths, self._supplied) if protected else {})

    def _labelled(self, X: Tables, y: Any, gone: Collection[str], *, protected: bool) -> Labelled:
        labels, stores = labels_of(y), encode(self.models_, X, gone)
        counts = {len(labels), *(store.rows for store in stores.values())}
        if len(counts) > 1:
            got = ", ".join(f"{count:,}" for count in sorted(counts))
            raise DataError.expected("as many labels in y as rows", got)
        codes = self._codes(labels)
        return Labelled(self._embed(stores, protected=protected), codes)


class VerticalClassifier(ClassifierMixin, _Vertical):  # type: ignore[misc]
    """A classifier trained across parties that hold different columns of the same rows.

    Args:
        active: name of the party that holds the labels.
        bottom: bottom models as in a job file, for instance `{"kind": "mlp", "hidden": [64, 32]}`.
        top: top model as in a job file.
        protections: settings such as `LabelDPConfig(eps=1.0)`; each of a list goes to the side that it belongs to, a
            mapping names the party.
        attacks: names of attacks, or `auto`.
        compare: baselines to train: `undefended`, `each`, `centralised`, `alone`, `retrained`, `finetuned`.
        epochs: number of epochs at most.
        batch_size: number of rows of a step.
        lr: learning rate of Adam.
        patience: stop after so many epochs without a better validation metric; `None` never stops early.
        validation: share of the rows that choose the epoch.
        test: share of the rows that are reported.
        threads: threads of the tensor library, or `auto`.
        seed: seed of the split and the schedule.
        run_dir: folder in which the run folder stays, as `run_dir/run`; `None` uses a temporary folder.
        secrets: folder of the parties' long-lived secrets, made if absent: with it, `label_dp` draws each row's label
            once over all fits. `None` makes new ones for every fit, and the eps of the fits add up.
        key: 32 bytes for all noise and all initial weights, so that both repeat: reproducible, not private. Without it
            each party draws both under keys of its own, and two fits differ.
        predictions: how many predictions are planned: calls of `predict`, `predict_proba`, `score`, `evaluate` and
            `finetune_top` on this fit, each of which releases every row of its tables once more. Noise that is counted
            (`DPEmbeddingConfig`) is drawn for so many, and further calls are refused.

    Attributes:
        report_: the run's `Report`.
        classes_: as in scikit-learn.
        folder_: the run folder.
    """

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "binary" if len(np.unique(labels)) <= 2 else "multiclass"

    def _codes(self, labels: npt.NDArray[Any]) -> Tensor:
        strangers = [label for label in np.unique(labels) if label not in set(self.classes_)]
        if strangers:
            wanted = f"labels among {', '.join(map(str, self.classes_))}"
            raise DataError.expected(wanted, ", ".join(map(str, strangers[:3])), "only these were trained on")
        return torch.from_numpy(np.searchsorted(self.classes_, labels).astype(np.int64))

    def predict_proba(self, X: Tables, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Probabilities (n, classes) of rows given by all parties, from what each releases through its protections.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            absent: passive parties that no longer answer.

        Raises:
            ConfigError: a party counts its releases, and no `predictions` were planned.
            BudgetExceeded: all planned predictions have been made.
            CutlayerError: bad input; says which party and what to do.
        """
        return self._predict(X, absent, protected=True)

    def predict_proba_unprotected(self, X: Tables, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Probabilities (n, classes) from bare embeddings, which no protection touched and nothing counts.

        They show what the models could do if one organisation held all columns.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            absent: passive parties that no longer answer.
        """
        return self._predict(X, absent, protected=False)

    def predict(self, X: Tables, absent: Collection[str] = ()) -> npt.NDArray[Any]:
        """The likeliest class of each row; arguments as of `predict_proba`."""
        likeliest = self._predict(X, absent, protected=True).argmax(axis=1)
        chosen: npt.NDArray[Any] = self.classes_[likeliest]
        return chosen


class VerticalRegressor(RegressorMixin, _Vertical):  # type: ignore[misc]
    """A regressor trained across parties; parameters and attributes as in `VerticalClassifier`."""

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "regression"

    def _codes(self, labels: npt.NDArray[Any]) -> Tensor:
        try:
            return torch.from_numpy(labels.astype(np.float32))
        except (TypeError, ValueError):
            raise DataError.expected("numbers in y", labels.dtype) from None

    def predict(self, X: Tables, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Predicted values (n,), from what each party releases through its protections.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            absent: passive parties that no longer answer.

        Raises:
            ConfigError: a party counts its releases, and no `predictions` were planned.
            BudgetExceeded: all planned predictions have been made.
            CutlayerError: bad input; says which party and what to do.
        """
        return self._predict(X, absent, protected=True)

    def predict_unprotected(self, X: Tables, absent: Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Predicted values (n,) from bare embeddings, which no protection touched and nothing counts.

        Args:
            X: tables as in `fit`; an absent party's need not be given.
            absent: passive parties that no longer answer.
        """
        return self._predict(X, absent, protected=False)


def _checked_key(key: bytes | None) -> bytes | None:
    if key is None or (isinstance(key, bytes) and len(key) == LENGTH):
        return key
    got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
    raise ConfigError.expected(f"key as {LENGTH} bytes", got, f"such as secrets.token_bytes({LENGTH})")
