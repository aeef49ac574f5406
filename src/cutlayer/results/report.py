"""`report.json`: everything a reviewer reads about one run, in one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from cutlayer.data.carried import Carried
from cutlayer.results.audit import Conclusions
from cutlayer.results.leaks import Baseline, LabelCurve, LayerLeak, LeakResult
from cutlayer.results.number import Bounded, Number
from cutlayer.results.privacy_card import PartyColumns
from cutlayer.results.run import EpochResult
from cutlayer.results.run_files import RunFiles
from cutlayer.results.summary import Summary
from cutlayer.results.utility import Gain


class FurtherLabel(Bounded):
    """The model of a further label of the run, whose report is in a folder of its own.

    Attributes:
        label: Name of the label column.
        value: Headline metric on the held-out rows.
        low: Lower bound of it (95 % bootstrap).
        high: Upper bound of it.
        gain: What the passive parties add to own columns; `None` without a model of these.
        leak: The worst leak of the label; `None` where no attack was run.
        failed: Whether a gate of its audit failed.
    """

    label: str
    value: Number = None
    gain: Gain | None = None
    leak: Number = None
    failed: bool = False


class Report(Summary, Conclusions):
    """The summary of a run with its history, audit and job.

    Attributes:
        history: All epochs of this run and of the runs it is compared with.
        leaks: Leaks of messages, in all runs.
        baselines: What the leaks of each passive party in this run compare with.
        curves: Leaks in this run by the number of labels that the attacker knows.
        layers: Leaks of layers, in all runs.
        limits: Attacks that could not be run, and why.
        columns: The columns that went in, by party.
        carried: What the grades of each party carry of its columns, by party; of those that released some.
        further_labels: The models of further labels on the same releases.
        job: The job as run, YAML.
        files: Whether its files are as the run wrote them; `None` where nothing says so.
    """

    title: ClassVar[str] = "a report"

    history: tuple[EpochResult, ...] = ()
    leaks: tuple[LeakResult, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    curves: tuple[LabelCurve, ...] = ()
    layers: tuple[LayerLeak, ...] = ()
    limits: tuple[str, ...] = ()
    columns: tuple[PartyColumns, ...] = ()
    carried: Mapping[str, Carried] = Field(default_factory=dict)
    further_labels: tuple[FurtherLabel, ...] = ()
    job: str = ""
    files: RunFiles | None = None

    @property
    def any_failed(self) -> bool:
        """Whether it failed, or the model of a further label."""
        return self.failed or any(further.failed for further in self.further_labels)
