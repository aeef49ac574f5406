"""The label owner's part of a trained model as a version of a model in MLflow's registry (extra `mlflow`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cutlayer.config.extras import remedy_of
from cutlayer.errors import ConfigError
from cutlayer.serving.given_columns import RequestKind
from cutlayer.version import __version__
from cutlayer_export.part import load_part
from cutlayer_loggers.mlflow_log import MlflowLog
from cutlayer_loggers.pyfunc import RegisteredModel

_LOADER = "cutlayer_loggers.pyfunc"
_FOLDER = "model"
_PACKAGES = ("cutlayer", "cutlayer-export", "cutlayer-loggers[mlflow]")
"""What reads a registered model, each in the version that wrote it."""


def register(uri: str, name: str, part: Path, job: str, run: str) -> str:
    """Add an exported part to a registry; returns the number of the version.

    No object is pickled: MLflow loads the files of the part by a module of this package.

    Args:
        uri: Tracking URI, which holds the registry too.
        name: Name of the registered model.
        part: Folder of the exported part of the label owner.
        job: Name of the job, that of the experiment.
        run: Name of the run.

    Raises:
        ConfigError: The extra is not installed, or the server refuses the model or cannot be reached.
    """
    log, release = MlflowLog(uri), __version__.partition("+")[0]
    model = RegisteredModel(load_part(part))
    try:
        number = log.begin(job, run, {"training": model.training}, None)
        from mlflow import pyfunc
        from mlflow.exceptions import MlflowException
    except ImportError as missing:
        raise ConfigError.expected("the extra `mlflow` with pandas", missing, remedy_of("mlflow")) from None
    except ConfigError:
        raise
    except Exception as failure:  # one of MLflow's, which cannot be named before it is imported
        raise _refused(uri, failure) from None
    try:
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / _FOLDER
            pyfunc.save_model(
                str(saved),
                loader_module=_LOADER,
                data_path=str(part),
                signature=_signature(model),
                pip_requirements=[f"{package}=={release}" for package in _PACKAGES],
            )
            log.client.log_artifacts(number, str(saved), _FOLDER)
        _create_model(log.client, name)
        source = f"{log.client.get_run(number).info.artifact_uri}/{_FOLDER}"
        version = log.client.create_model_version(name, source, number).version
    except MlflowException as failure:
        log.end("FAILED")
        raise _refused(uri, failure) from None
    log.end("FINISHED")
    return str(version)


def _refused(uri: str, failure: Exception) -> ConfigError:
    reason = next(iter(str(failure).splitlines()), "") or type(failure).__name__
    return ConfigError(f"{uri} refused the model: {reason.strip()[:300]}")


def _create_model(client: Any, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as failure:
        if failure.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _signature(model: RegisteredModel) -> Any:
    """Columns of the input and of the output; any of them may be missing in a row."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    kinds: dict[RequestKind, Any] = {"number": DataType.double, "days": DataType.double, "boolean": DataType.boolean}
    inputs = [
        ColSpec(kinds.get(kind, DataType.string), column, required=False) for column, kind in model.columns.items()
    ]
    return ModelSignature(Schema(inputs), Schema([ColSpec(DataType.double, name) for name in model.outputs]))
