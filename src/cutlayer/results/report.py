"""`report.json`: everything a reviewer reads about one run, in one document."""

from __future__ import annotations

from typing import ClassVar

from cutlayer.results.completion import CompletionResult
from cutlayer.results.features import FeatureResult
from cutlayer.results.finding import Finding, Gate
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.results.leaks import LayerLeak, LeakResult
from cutlayer.results.run import EpochResult
from cutlayer.results.summary import Summary


class Report(Summary):
    """The summary of a run with its history, audit and job.

    Attributes:
        history: all epochs of this run and of the runs it is compared with.
        leaks: leaks of messages, in all runs.
        layers: leaks of layers, in all runs.
        completions: model completion by departed parties.
        features: attacks on features.
        guarantees: guarantees that were tested with canaries.
        gates: limits and the worst values against them.
        findings: what a reviewer should look at, errors first.
        limits: attacks that could not be run, and why.
        job: the job as run, YAML.
    """

    mode: ClassVar[int] = 0o644
    """The file is made to be passed on."""
    title: ClassVar[str] = "a report"

    history: tuple[EpochResult, ...] = ()
    leaks: tuple[LeakResult, ...] = ()
    layers: tuple[LayerLeak, ...] = ()
    completions: tuple[CompletionResult, ...] = ()
    features: tuple[FeatureResult, ...] = ()
    guarantees: tuple[GuaranteeTest, ...] = ()
    gates: tuple[Gate, ...] = ()
    findings: tuple[Finding, ...] = ()
    limits: tuple[str, ...] = ()
    job: str = ""
