"""A run in MLflow: metrics by epoch, settings as parameters, and the report as an artefact (extra `mlflow`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.config.addresses import local_path
from cutlayer.consent import host_of
from cutlayer.errors import ConfigError
from cutlayer_loggers.base import End, Log

if TYPE_CHECKING:
    from mlflow import MlflowClient

BATCH = 100
"""Parameters that MLflow takes at once."""


class MlflowLog(Log):
    """Writes to an MLflow server.

    Args:
        uri: Tracking URI.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.run = ""
        self.client: MlflowClient

    def begin(self, job: str, run: str, settings: Mapping[str, str], earlier: str | None) -> str:
        """Create a run in the experiment of the job's name, or continue the earlier one.

        Raises:
            ConfigError: Its artefacts would go elsewhere.
        """
        # MLflow reports its use to its makers unless this is set before it is imported.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client = MlflowClient(tracking_uri=self.uri)
        if earlier is not None:
            self._check_artefacts(self.client.get_run(earlier).info.artifact_uri)
            self.client.update_run(earlier, status="RUNNING")
            self.run = earlier
            return earlier
        experiment = self.client.get_experiment_by_name(job)
        store = local_path(self.uri)
        place = None if store is None else f"{store}.artefacts"
        number = experiment.experiment_id if experiment else self.client.create_experiment(job, place)
        created = self.client.create_run(number, run_name=run).info
        self._check_artefacts(created.artifact_uri)
        self.run = str(created.run_id)
        params = [Param(key, value) for key, value in settings.items()]
        for start in range(0, len(params), BATCH):
            self.client.log_batch(self.run, params=params[start : start + BATCH])
        return self.run

    def _check_artefacts(self, address: str) -> None:
        """Refuse artefacts in files, or at a host, besides those of the tracking URI: a store states any address.

        Other services, such as S3, get no credential of MLflow. They are refused for a store of this machine, which
        may come with a job from somebody else.
        """
        store, place, scheme = local_path(self.uri), local_path(address), address.partition(":")[0].lower()
        if store is not None:
            near = [store.resolve(), Path(f"{store}.artefacts").resolve()]
            fits = "%" not in address and place is not None and any(map(place.resolve().is_relative_to, near))
        elif scheme in ("http", "https", "mlflow-artifacts"):
            fits = "://" not in address or host_of(address) == host_of(self.uri)
        else:
            fits = place is None
        if not fits:
            raise ConfigError.expected(f"artefacts at {self.uri}", ascii(address)[:200], "name another experiment")

    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write metrics; the number of the epoch is MLflow's step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(self.run, metrics=[Metric(name, value, now, epoch) for name, value in values.items()])

    def attach(self, page: Path) -> None:
        """Upload an artefact."""
        self.client.log_artifact(self.run, str(page))

    def end(self, state: End) -> None:
        """Set the run's status."""
        self.client.set_terminated(self.run, status=state)
