"""One job file with other values for some of its keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cutlayer.config import Job
from cutlayer.config.load import job_from_values, load_job, read_yaml
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.further_labels import first_label_job
from cutlayer_sweep.changes import with_value
from cutlayer_sweep.space import Point, Range, Space, Varied, format_value


class Variants:
    """The jobs that differ from one job file by the values at some dotted paths.

    A path may lead to a key that the file leaves at its default, and into a list by number (`model.top.hidden.0`). Of
    several labels the jobs have the first alone.

    Args:
        file: The job file.

    Raises:
        ConfigError: The file itself is wrong.
    """

    def __init__(self, file: Path) -> None:
        self.base = first_label_job(load_job(file))
        self._raw = read_yaml(file)
        self._folder = file.parent

    def job(self, point: Point) -> Job:
        """The job at a point, checked; without comparisons, which a sweep does not need.

        Raises:
            ConfigError: There is no such key, or it cannot hold the value.
        """
        values = ", ".join(f"{path}={format_value(value)}" for path, value in point.items())
        try:
            raw = self._raw
            for path, value in point.items():
                raw = with_value(raw, path.split("."), value)
            job = first_label_job(job_from_values(raw, self._folder)).uncompared()
            check_job(job)
        except ConfigError as error:
            raise ConfigError("\n".join(f"--vary {values}: {line}" for line in str(error).splitlines())) from None
        return job

    def checked(self, space: Space, trials: int) -> Space:
        """Check every value and end, and every point that is known beforehand; find the ranges of whole numbers.

        Raises:
            ConfigError: There is no such key, or it cannot hold a value.
            NotApplicable: An attack or protection does not fit.
        """
        first = {dimension.path: dimension.edges[0] for dimension in space.varied}
        for dimension in space.varied:
            for value in dimension.edges:
                self.job({**first, dimension.path: value})
        space = replace(space, varied=tuple(self._whole(dimension, first) for dimension in space.varied))
        for slot in range(trials):
            if point := space.fixed(slot):
                self.job(point)
        return space

    def _whole(self, dimension: Varied, first: Point) -> Varied:
        """Restrict a range with integer ends to whole numbers where the job refuses a fraction."""
        if isinstance(dimension, Range) and isinstance(dimension.low, int) and isinstance(dimension.high, int):
            try:
                self.job({**first, dimension.path: dimension.low + 0.5})
            except ConfigError:
                return replace(dimension, whole=True)
        return dimension
