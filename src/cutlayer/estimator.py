"""The scikit-learn-style door: all parties in one process, tables in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
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
from cutlayer.errors import ConfigError, DataError
from cutlayer.models import BottomModel, Inputs, build_bottom, build_top
from cutlayer.parties.checkpoint import Checkpoints
from cutlayer.protections import REGISTRY
from cutlayer.protections.base import Side
from cutlayer.report import Report, build
from cutlayer.runs.again import audit_again
from cutlayer.runs.execute import Options, Progress, execute
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.together import Keys
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
        self.key = key

    def fit(self, X: Tables, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Train on the parties' tables.

        Args:
            X: by party name, a DataFrame or array each; the i-th rows of all belong together. The active party may be
                left out if it has no features.
            y: labels (n,), known to the active party alone.

        Raises:
            CutlayerError: bad input; says which party and what to do.
        """
        labels = np.asarray(y)
        job = self._job(X, labels)
        if self.run_dir is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="cutlayer-")
        out = Path(self._scratch.name if self.run_dir is None else self.run_dir)
        tables = {name: open_source(X[name], name).read_all() for name in job.parties if name in X}
        tables[job.active] = _with_labels(tables.get(job.active), labels)
        keys = Keys(out / "keys", self.key)
        self.folder_ = execute(job, out / "run", Options(keys, tables=tables), Progress())
        self.report_ = build(self.folder_.path)
        self.job_ = job
        self.classes_ = np.unique(labels)
        self._load(job, self.folder_)
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

    def _job(self, tables: Tables, labels: npt.NDArray[Any]) -> Job:
        if not isinstance(tables, Mapping):
            raise DataError.expected("X as a mapping from party name to table", type(tables).__name__)
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
            "early_stop": {"patience": self.patience} if self.patience else None,
        }
        raw = {"task": self._kind(labels), "parties": parties, "model": model, "train": train, "compare": self.compare}
        return validated(Job, raw, type(self).__name__)

    def _privacy(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Protections by party: a plain list goes to the side each protection belongs to."""
        kinds = {kind.config: kind for kind in REGISTRY.values()}
        wanted: dict[str, dict[str, Any]] = {name: {} for name in names}
        if isinstance(self.protections, Mapping):
            given = [(name, one) for name, some in self.protections.items() for one in some]
        else:
            given = [(name, one) for one in self.protections for name in names if self._owns(name, kinds, one)]
        for name, one in given:
            if name not in wanted:
                raise ConfigError.expected(f"protections of {', '.join(names)}", name)
            wanted[name][kinds[type(one)].name] = one.model_dump()
        return wanted

    def _owns(self, name: str, kinds: Mapping[type[Section], Any], one: Section) -> bool:
        if type(one) not in kinds:
            known = ", ".join(kind.__name__ for kind in kinds)
            raise ConfigError.expected(f"a protection's settings ({known})", type(one).__name__)
        return bool((kinds[type(one)].side == Side.ACTIVE) == (name == self.active))

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        raise NotImplementedError

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
                self.bottoms_[name] = build_bottom(job.model.bottom_of(name), inputs)
                _restore(self.bottoms_[name], "bottom", job, folder, name)
        truth, training = read_truth(folder.transcript(job.active))
        self.task_ = Task.fitted(job.task, self.report_.task.classes, truth[training])
        widths = {name: bottom.width for name, bottom in self.bottoms_.items()}
        self.top_ = build_top(job.model.top, widths, self.task_.outputs)
        _restore(self.top_, "top", job, folder, job.active)

    def _predict(self, X: Tables) -> npt.NDArray[np.float64]:  # noqa: N803 - scikit-learn's name
        check_is_fitted(self, "folder_")
        missing = [name for name in self.encoders_ if name not in X]
        if missing:
            raise DataError.expected(f"a table of {', '.join(self.encoders_)}", f"none of {', '.join(missing)}")
        embeddings: dict[str, Tensor] = {}
        with torch.no_grad():
            for name, encoder in self.encoders_.items():
                encoded = PartyTable(name, X[name], encoder=encoder).encode_all()
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
        key: 32 bytes for all noise, so that it repeats: reproducible, not private.

    Attributes:
        report_: the run's `Report`. classes_: as in scikit-learn. folder_: the run folder.
    """

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "binary" if len(np.unique(labels)) <= 2 else "multiclass"

    def predict_proba(self, X: Tables) -> npt.NDArray[np.float64]:  # noqa: N803 - scikit-learn's name
        """Probabilities (n, classes) of rows given by all parties."""
        return self._predict(X)

    def predict(self, X: Tables) -> npt.NDArray[Any]:  # noqa: N803 - scikit-learn's name
        """The likeliest class of each row."""
        chosen: npt.NDArray[Any] = self.classes_[self._predict(X).argmax(axis=1)]
        return chosen


class VerticalRegressor(RegressorMixin, _Vertical):  # type: ignore[misc]
    """A regressor trained across parties; parameters and attributes as in `VerticalClassifier`."""

    def _kind(self, labels: npt.NDArray[Any]) -> str:
        return "regression"

    def predict(self, X: Tables) -> npt.NDArray[np.float64]:  # noqa: N803 - scikit-learn's name
        """Predicted values (n,)."""
        return self._predict(X)


def _with_labels(table: pa.Table | None, labels: npt.NDArray[Any]) -> pa.Table:
    column = pa.array(labels)
    if table is None:
        return pa.table({LABEL: column})
    if LABEL in table.column_names:
        raise DataError(f"a feature of the active party is called {LABEL!r}; rename it")
    if table.num_rows != len(labels):
        raise DataError.expected(f"{table.num_rows} labels, one per row", len(labels))
    return table.append_column(LABEL, column)


def _restore(module: torch.nn.Module, name: str, job: Job, folder: RunFolder, party: str) -> None:
    """Load the weights a run ended with."""
    checkpoints = Checkpoints(folder.path / "checkpoint" / party, party, job.digest())
    tensors, _ = checkpoints.load_best() if job.keeps_best else checkpoints.load(checkpoints.latest())
    prefix = f"module/{name}."
    module.load_state_dict({k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)})
    module.eval()
