"""A run in MLflow: metrics by epoch, settings as parameters, and the report as an artefact (extra `mlflow`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.loggers.base import End, Log

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
        """Create a run in the experiment of the job's name, or continue the earlier one."""
        # MLflow reports its use to its makers unless this is set before it is imported.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client = MlflowClient(tracking_uri=self.uri)
        if earlier is not None:
            self.client.update_run(earlier, status="RUNNING")
            self.run = earlier
            return earlier
        experiment = self.client.get_experiment_by_name(job)
        number = experiment.experiment_id if experiment else self.client.create_experiment(job)
        self.run = str(self.client.create_run(number, run_name=run).info.run_id)
        params = [Param(key, value) for key, value in settings.items()]
        for start in range(0, len(params), BATCH):
            self.client.log_batch(self.run, params=params[start : start + BATCH])
        return self.run

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
