"""The scikit-learn-style door: all parties in one process, tables in memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cutlayer.config import Job, Section, validated
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.source import open_source
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.models import BottomModel, Inputs
from cutlayer.protections import REGISTRY, Protection
from cutlayer.protections.base import Side
from cutlayer.report import Report, build
from cutlayer.runs.again import audit_again
from cutlayer.runs.execute import Options, Progress, execute
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.keys import LENGTH
from cutlayer.runs.together import Keys
from cutlayer.runs.trained import load_bottom, load_top
from cutlayer.runs.watch import read_truth
from cutlayer.tasks import Task

LABEL = "label"
Tables = Mapping[str, Any]
Protections = Sequence[Section] | Mapping[str, Sequence[Section]]


class _Vertical(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share; parameters as documented there."""

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

    def fit(self, X: Tables, y: Any) -> Self:
        """Train on the parties' tables.

        Args:
            X: by party name, a DataFrame or array each; the i-th rows of all belong together. The active party may be
                left out if it has no features.
            y: labels (n,), known to the active party alone.

        Raises:
            CutlayerError: bad input; says which party and what to do.
        """
        labels = _labels(y)
        job = self._job(X, labels)
        tables = _read(X, [name for name in job.parties if name in X])
        _check_rows(tables, len(labels))
        tables[job.active] = _with_labels(tables.get(job.active), labels)
        key, out = _checked_key(self.key), self._out()
        with _process_left_alone():
            keys = Keys(Path(self.secrets or out / "keys"), key)
            folder = execute(job, out / "run", Options(keys, tables=tables), Progress())
            self.folder_, self.job_ = folder, job
            self.report_ = build(folder.path)
            if job.task != "regression":
                self.classes_ = np.unique(labels)
            self._load(job, folder)
        return self

    def audit(self, attacks: Sequence[str] = ()) -> Report:
        """Attack the recorded transcript again; updates and returns `report_`.

        Args:
            attacks: names; those of the fit where empty.
        """
        check_is_fitted(self, "folder_")
        audit_again(self.folder_, tuple(attacks))
        self.report_ = build(self.folder_.path)
        return self.report_

    def _out(self) -> Path:
        """Where the run goes; a folder made for it goes when this estimator does."""
        if self.run_dir is not None:
            if (Path(self.run_dir) / "run").exists():
                raise RunFolderError(f"{self.run_dir} holds a run already; choose another run_dir, or remove it")
            return Path(self.run_dir)
        scratch = tempfile.mkdtemp(prefix="cutlayer-")
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        return Path(scratch)

    def _job(self, tables: Tables, labels: npt.NDArray[Any]) -> Job:
        _check_mapping(tables)
        names = [self.active, *(name for name in tables if name != self.active)]
        privacy = self._privacy(names)
        parties: dict[str, Any] = {
            name: {"role": "active" if name == self.active else "passive", "privacy": privacy[name]} for name in names
        }
        parties[self.active] |= {"label": LABEL, "audit": {"attacks": self.attacks}}
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

    def _privacy(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Protections by party: a plain list goes to the side each protection belongs to."""
        wanted: dict[str, dict[str, Any]] = {name: {} for name in names}
        for name, one in self._given(names):
            if name not in wanted:
                raise ConfigError.expected(f"protections of {', '.join(names)}", name)
            protection = _protection(one)
            if protection.name in wanted[name]:
                raise ConfigError.expected(f"{name}: {protection.name} once", "it twice", "keep one of them")
            wanted[name][protection.name] = one.model_dump()
        return wanted

    def _given(self, names: Sequence[str]) -> Iterator[tuple[str, Section]]:
        """Each protection with its party: the one the mapping says, or all of the side it is for."""
        by_party = self.protections if isinstance(self.protections, Mapping) else {None: self.protections}
        for party, some in by_party.items():
            if not isinstance(some, list | tuple):
                got = type(some).__name__
                raise ConfigError.expected("protections in a list", got, "such as [LabelDPConfig(eps=1.0)]")
            for one in some:
                active = _protection(one).side == Side.ACTIVE
                owners = [name for name in names if active == (name == self.active)] if party is None else [party]
                yield from ((owner, one) for owner in owners)

    @abstractmethod
    def _kind(self, labels: npt.NDArray[Any]) -> str:
        """The kind of task these labels make."""

    def _load(self, job: Job, folder: RunFolder) -> None:
        """Take the trained models and fitted encoders out of the run folder."""
        self.encoders_: dict[str, Encoder] = {}
        self.bottoms_: dict[str, BottomModel] = {}
        for name in job.parties:
            path = folder.data(name) / "encoder.json"
            if path.exists():
                self.encoders_[name] = Encoder.from_json(path.read_text())
                columns = self.encoders_[name].columns
                inputs = Inputs(columns.cardinalities, columns.numeric)
                self.bottoms_[name] = load_bottom(job, folder, name, inputs)
        truth, training = read_truth(folder.transcript(job.active))
        self.task_ = Task.fitted(job.task, self.report_.task.classes, truth[training])
        widths = {name: bottom.width for name, bottom in self.bottoms_.items()}
        self.top_ = load_top(job, folder, widths, self.task_.outputs)

    def _predict(self, X: Tables) -> npt.NDArray[np.float64]:
        check_is_fitted(self, "folder_")
        _check_mapping(X)
        missing = [name for name in self.encoders_ if name not in X]
        if missing:
            raise DataError.expected(f"a table of {', '.join(self.encoders_)}", f"none of {', '.join(missing)}")
        tables = _read(X, list(self.encoders_))
        _check_rows(tables)
        embeddings: dict[str, Tensor] = {}
        with torch.no_grad():
            for name, encoder in self.encoders_.items():
                encoded = PartyTable(name, tables[name], encoder=encoder).encode_all()
                embeddings[name] = self.bottoms_[name](encoded.codes, encoded.numbers)
            logits: Tensor = self.top_(embeddings)
        predicted: npt.NDArray[np.float64] = self.task_.predict(logits.double()).numpy()
        return predicted


class VerticalClassifier(ClassifierMixin, _Vertical):  # type: ignore[misc]
    """A classifier trained across parties that hold different columns of the same rows.

    Args:
        active: name of the party that holds the labels.
        bottom, top: model sections as in a job file, for instance `{"kind": "mlp", "hidden": [64, 32]}`.
        protections: settings such as `LabelDPConfig(eps=1.0)`; a list goes to the side each belongs to, a mapping says
            the party.
        attacks: names, or `auto`.
        compare: as in a job file: `undefended`, `each`, `centralised`, `alone`.
        epochs, batch_size, lr, seed, threads: of the training.
        patience: stop after so many epochs without a better validation metric; `None` never stops early.
        validation, test: shares of the rows held out of training.
        run_dir: keeps the run folder, as `run_dir/run`; `None` uses a temporary one.
        secrets: folder of the parties' long-lived secrets, made if absent: with it, `label_dp` draws each row's label
            once over all fits. `None` makes new ones for every fit, and the eps of the fits add up.
        key: 32 bytes for all noise, so that it repeats: reproducible, not private.

    Attributes:
        report_: the run's `Report`. classes_: as in scikit-learn. folder_: the run folder.
    """

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "binary" if len(np.unique(labels)) <= 2 else "multiclass"

    def predict_proba(self, X: Tables) -> npt.NDArray[np.float64]:
        """Probabilities (n, classes) of rows given by all parties."""
        return self._predict(X)

    def predict(self, X: Tables) -> npt.NDArray[Any]:
        """The likeliest class of each row."""
        likeliest = self._predict(X).argmax(axis=1)
        chosen: npt.NDArray[Any] = self.classes_[likeliest]
        return chosen


class VerticalRegressor(RegressorMixin, _Vertical):  # type: ignore[misc]
    """A regressor trained across parties; parameters and attributes as in `VerticalClassifier`."""

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "regression"

    def predict(self, X: Tables) -> npt.NDArray[np.float64]:
        """Predicted values (n,)."""
        return self._predict(X)


def _with_labels(table: pa.Table | None, labels: npt.NDArray[Any]) -> pa.Table:
    column = pa.array(labels)
    if table is None:
        return pa.table({LABEL: column})
    if LABEL in table.column_names:
        raise DataError(f"a feature of the active party is called {LABEL!r}; rename it")
    return table.append_column(LABEL, column)


def _labels(y: Any) -> npt.NDArray[Any]:
    """Labels (n,) of one kind; a single column counts as that."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not len(labels):
        raise DataError.expected("y as labels (n,), one per row", f"shape {labels.shape}")
    try:
        np.unique(labels)
    except TypeError:
        got = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise DataError.expected("labels of one kind in y", got, "drop the rows without a label") from None
    return labels


def _read(tables: Tables, names: Sequence[str]) -> dict[str, pa.Table]:
    """The parties' tables; the index of a pandas frame is no column."""
    plain = {name: tables[name] for name in names}
    plain = {name: one.reset_index(drop=True) if hasattr(one, "reset_index") else one for name, one in plain.items()}
    return {name: open_source(one, name).read_all() for name, one in plain.items()}


def _check_mapping(tables: object) -> None:
    if not isinstance(tables, Mapping):
        raise DataError.expected("X as a mapping from party name to table", type(tables).__name__)


def _check_rows(tables: Mapping[str, pa.Table], labels: int | None = None) -> None:
    """The i-th rows of all tables belong together, so they have as many."""
    counts = {name: table.num_rows for name, table in tables.items()}
    counts |= {} if labels is None else {"y": labels}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise DataError.expected("as many rows everywhere, in the same order", got)


def _checked_key(key: bytes | None) -> bytes | None:
    if key is None or (isinstance(key, bytes) and len(key) == LENGTH):
        return key
    got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
    raise ConfigError.expected(f"key as {LENGTH} bytes", got, f"such as secrets.token_bytes({LENGTH})")


def _protection(settings: object) -> type[Protection[Any]]:
    """The protection that these settings are of."""
    kinds = {kind.config: kind for kind in REGISTRY.values()}
    found = next((kind for config, kind in kinds.items() if type(settings) is config), None)
    if found is None:
        known = ", ".join(sorted(config.__name__ for config in kinds))
        raise ConfigError.expected(f"a protection's settings ({known})", type(settings).__name__)
    return found


@contextmanager
def _process_left_alone() -> Iterator[None]:
    """A run sets the tensor library's threads and draws from its generator; what runs after it has its own mind."""
    before = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)
