"""The `sklearn` kind: an estimator of scikit-learn's interface, imported with consent and stored without pickle."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.models.top_estimators.archive import check_archive
from cutlayer.models.top_estimators.forest import ForestPart
from cutlayer.models.top_estimators.rows import FitRows, FittedPart, Floats, Int64Buffer, UInt8Buffer, log_shares
from cutlayer.models.user import user_errors

Matrix: TypeAlias = npt.NDArray[np.float32]
Predictor: TypeAlias = Callable[[Matrix], Floats]
"""Probabilities (n, classes), or of the second of two classes (n,); or values (n,)."""


class EstimatorPart(FittedPart):
    """A fitted estimator as bytes: in the own format of XGBoost, LightGBM or CatBoost, otherwise in that of skops.

    It has no program for `torch.export`, since its library computes its predictions.

    Attributes:
        content: The estimator, uint8. Its class, and so its format, are those of the job.
        position: Column of the estimator's probabilities that each class has, int64 (classes,); empty for a
            regression.

    Args:
        model: Class of the estimator.
        path: Path of the class.
    """

    kind = "estimator"

    content: UInt8Buffer
    position: Int64Buffer

    def __init__(self, model: Callable[..., Any], path: str) -> None:
        super().__init__()
        self._model = model
        self._path = path
        self._predictor: Predictor | None = None

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        if self._predictor is None:
            raise ConfigError.expected("a fitted estimator", "one before its fit", "call fit, or load a fitted state")
        matrix = torch.cat([codes.float(), numbers.float()], dim=1).cpu().numpy()
        with user_errors(self._path):
            predicted = torch.from_numpy(np.array(self._predictor(matrix), dtype=np.float64)).to(numbers.device)
        if not self.position.shape[0]:
            return predicted.reshape(-1, 1)
        shares = predicted if predicted.dim() == 2 else torch.stack([1 - predicted, predicted], dim=1)
        return log_shares(shares, self.position)

    def take(self, model: Any, rows: FitRows) -> None:
        """Store a fitted estimator of the class; from then on the stored one predicts."""
        with user_errors(self._path):
            content = self._format.encode(model)
        self.hold(content=torch.frombuffer(bytearray(content), dtype=torch.uint8))
        if rows.classes:
            self.hold(position=rows.positions)
        self._decode()

    @property
    def _format(self) -> _Format:
        form = next((name for name in _FORMATS if _is_of(self._model, name)), _SKOPS)
        _installed(form)
        return _FORMATS[form]

    def _decode(self) -> None:
        form = self._format
        with user_errors(self._path):
            self._predictor = form.decode(self.content.cpu().numpy().tobytes(), self._model)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        if len(self.content):
            self._decode()


def fit_estimator(kind: Callable[..., Any], path: str, args: Mapping[str, Any], rows: FitRows, seed: int) -> FittedPart:
    """Fit an estimator to codes and numbers side by side, float32 (n, c + m), with NaN where a number is missing.

    Args:
        kind: Its class.
        path: Path of the class.
        args: Keyword arguments of its constructor; `random_state` is the seed unless it is among them.
        rows: Training rows; the classes among them are numbered from 0 on.
        seed: Seed of the fit.

    Raises:
        ConfigError: It fails; it takes no weights of rows where there are some; or it cannot be stored.
    """
    with user_errors(path):
        seeded = "random_state" in kind().get_params() if hasattr(kind, "get_params") else False
        model = kind(**({"random_state": seed} if seeded else {}) | dict(args))
    given = {}
    if rows.weights is not None:
        if "sample_weight" not in signature(model.fit).parameters:
            wanted = f"{path} to take weights of rows (`sample_weight` of fit)"
            raise ConfigError.expected(wanted, "no such argument", "leave out the weights, or take another estimator")
        given["sample_weight"] = rows.weights
    matrix = np.concatenate([rows.codes.astype(np.float32), rows.numbers], axis=1)
    targets = np.searchsorted(rows.present, rows.targets) if rows.classes else rows.targets
    with user_errors(path):
        model.fit(matrix, targets, **given)
    forest = ForestPart.of(model, rows)
    if forest is not None:
        return forest
    made = EstimatorPart(kind, path)
    made.take(model, rows)
    return made


def _is_of(model: Any, library: str) -> bool:
    return any(part.__module__.partition(".")[0] == library for part in model.__mro__)


def _installed(form: str) -> Any:
    try:
        return import_module("skops.io" if form == _SKOPS else form)
    except ImportError:
        remedy = "pip install 'cutlayer[sklearn]'" if form == _SKOPS else f"pip install {form}"
        raise ConfigError.expected(f"the package {form}, which reads the fitted estimator", "none", remedy) from None


def _from_skops(content: bytes, kind: Any) -> Predictor:
    skops = _installed(_SKOPS)
    check_archive(content)
    model = skops.loads(content, trusted=skops.get_untrusted_types(data=content))
    if type(model) is not kind:
        raise ConfigError.expected(f"an estimator of {kind.__qualname__}", type(model).__qualname__)
    return _probabilities(model)


def _probabilities(model: Any) -> Predictor:
    if hasattr(model, "predict_proba"):
        return lambda matrix: model.predict_proba(matrix)
    if hasattr(model, "decision_function"):
        return lambda matrix: _of_decisions(np.asarray(model.decision_function(matrix), dtype=np.float64))
    return lambda matrix: model.predict(matrix)


def _of_decisions(values: Floats) -> Floats:
    logits = values if values.ndim == 2 else np.stack([np.zeros_like(values), values], axis=1)
    return torch.softmax(torch.from_numpy(logits), dim=1).numpy()


def _from_xgboost(content: bytes, _: Any) -> Predictor:
    xgboost = _installed("xgboost")
    booster = xgboost.Booster(model_file=bytearray(content))
    return lambda matrix: booster.predict(xgboost.DMatrix(matrix))


def _from_lightgbm(content: bytes, _: Any) -> Predictor:
    booster = _installed("lightgbm").Booster(model_str=content.decode())
    return lambda matrix: booster.predict(matrix)


def _to_catboost(model: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="cutlayer-catboost-") as folder:
        model.save_model(str(Path(folder) / "model"), format="cbm")
        return (Path(folder) / "model").read_bytes()


def _from_catboost(content: bytes, _: Any) -> Predictor:
    model = _installed("catboost").CatBoost().load_model(blob=content)
    classes = model.classes_ is not None and len(model.classes_) > 0
    return lambda matrix: model.predict(matrix, prediction_type="Probability" if classes else "RawFormulaVal")


class _Format(NamedTuple):
    """How a fitted estimator becomes bytes, and how bytes predict, given the class that the job names."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, Any], Predictor]


_SKOPS = "skops"
_FORMATS: Mapping[str, _Format] = {
    "xgboost": _Format(lambda model: bytes(model.get_booster().save_raw("ubj")), _from_xgboost),
    "lightgbm": _Format(lambda model: str(model.booster_.model_to_string()).encode(), _from_lightgbm),
    "catboost": _Format(_to_catboost, _from_catboost),
    _SKOPS: _Format(lambda model: bytes(_installed(_SKOPS).dumps(model)), _from_skops),
}
