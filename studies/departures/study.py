"""Utility after parties have departed: party-wise dropout, further heads, and the active party alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutlayer.config import Job
from cutlayer.training.folder import RunFolder
from studies.datasets import adult, digits, handwritten
from studies.departures.claims import ACCURACY, AUC, MULTI_HEAD, RATES, by_metric, rate_setting
from studies.departures.page import departures_page
from studies.image_halves import LENET, RESNET, SGD, TOP, ImageHalves
from studies.page import Page
from studies.results import Results
from studies.trials import Study, Trial

SETTINGS = (*map(rate_setting, RATES), MULTI_HEAD)
CNN: Mapping[str, Any] = {"kind": "cnn"}
IMAGES = (
    ImageHalves("MNIST halves", "mnist/mnist.npz", CNN, epochs=5, batch=64, rows=20_000),
    ImageHalves("CIFAR-10 halves", "cifar10/cifar10_subset.npz", LENET, epochs=20, batch=64),
    ImageHalves("CIFAR-100 halves", "cifar100/cifar100_subset.npz", LENET, epochs=20, batch=64),
)
FULL = (
    ImageHalves("MNIST halves", "mnist/mnist.npz", CNN, epochs=10, batch=64),
    ImageHalves("CIFAR-10 halves", "cifar10/cifar10.npz", RESNET, 30, 32, optimizer=SGD, threads=2),
    ImageHalves("CIFAR-100 halves", "cifar100/cifar100.npz", RESNET, 30, 32, optimizer=SGD, threads=2),
)
FURTHER = 2
"""Seeds beyond those asked for, on the data sets that take seconds."""
HEADS = "Multi-head: one further head for every set of absent parties, trained on the sum of all losses."
REFERENCES = {"Adult": ("alone", "retrained"), "handwritten": ("alone", "retrained")}
"""References without the departed parties; of two parties that is the active one alone."""


class DeparturesStudy(Study):
    """Accuracy before and after a departure on Adult, six views of digits, and halves of images."""

    name = "departures"
    title = "Utility after parties have departed"
    source = "Sun, Du et al. 2023 (arXiv 2303.18178)"
    advice = (
        "If a party may leave, train with `party_dropout` of 0.1 or more, or with `multi_head`: without either the "
        "accuracy after the departure of a party that matters is below that of a model trained alone. On Adult that "
        "is mostly the level of the answers: the AUC is 0.794 ± 0.005 against 0.813 ± 0.006 where the census office "
        "leaves, and no lower where both leave."
    )
    settings = (
        "Data: Adult, 48,842 rows at the demo's three parties, and six views of 2,000 handwritten digits at six "
        "parties (30 epochs of batch 64), otherwise with a job's default network and schedule. Halves of images, the "
        "left one at the active party: MNIST, 20,000 rows, `cnn`, 5 epochs; CIFAR-10 and CIFAR-100, stratified "
        "subsets of 19,200 and 15,000 rows, `lenet5`, 20 epochs; batch 64, 15 % for testing. Adam 1e-3; the best "
        f"epoch by validation accuracy or AUC with all parties present. {HEADS} Adult, the digits and MNIST, which "
        f"take seconds, are trained on {FURTHER} further seeds. About 15 minutes a seed on one core, 1 hour for "
        "three.\n\n"
        "Differences from the paper: its CIFAR sets are whole, its network is ResNet-18, and it trains with SGD of "
        "rate 0.01 in batches of 32; accuracies here are far lower, so that limits in points weigh more than there."
    )
    full_settings = (
        f"As the default, but MNIST with all 70,000 rows and 10 epochs, and the whole of CIFAR-10 and CIFAR-100 "
        f"(`cifar10/cifar10.npz` and `cifar100/cifar100.npz` in the folder of data sets, arrays `x_train`, `y_train`, "
        f"`x_test` and `y_test`) with `resnet18`, batch 32, SGD of rate 0.01 and momentum 0.9, the best of 30 epochs. "
        f"{HEADS} Adult and the digits are trained on {FURTHER} further seeds. "
        f"An estimated 170 hours for three seeds on two cores; no accelerator is used."
    )

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """Each rate and the further heads on every data set; the seeds outermost, small data sets first."""
        names, views = handwritten(data)
        images = [(halves, halves.tables(data)) for halves in (FULL if self.full else IMAGES)]
        quick = [] if self.full else images[:1]
        for seed in range(1, seeds + FURTHER + 1):
            for setting in SETTINGS:
                privacy, top, compare = variant("Adult", setting, {"kind": "mlp"})
                yield Trial("Adult", setting, seed, adult(seed, privacy, top, compare))
            for setting in SETTINGS:
                privacy, top, compare = variant("handwritten", setting, {"kind": "mlp"})
                yield Trial("handwritten", setting, seed, _digits(names, seed, privacy, top, compare), views)
            for halves, tables in images if seed <= seeds else quick:
                for setting in SETTINGS:
                    privacy, top, compare = variant(halves.group, setting, TOP)
                    job = halves.job(seed, privacy, top=top, compare=compare)
                    yield Trial(halves.group, setting, seed, job, tables)

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        """Accuracy, and AUC of two classes, for every set of absent parties and all references; the heads."""
        return departure_values(folder)

    def page(self, results: Results) -> Page:
        """Claims, the paper's table, and a section for each data set and departure."""
        return departures_page(results)


def departure_values(folder: RunFolder) -> dict[str, Any]:
    """Utility of a finished run with every set of parties present, and of its references.

    Args:
        folder: Run folder.

    Returns:
        `without` and `references`: accuracies by the absent parties and by reference; of two classes their AUC too.
        `heads` and `extra_parameters`: numbers of further heads and of their parameters.
    """
    departures, utility = folder.summary.departures, folder.summary.utility
    metrics = (ACCURACY, *([AUC] if utility.metric == AUC else []))
    measured: dict[str, Any] = {"heads": departures.heads, "extra_parameters": departures.extra_parameters}
    for name in metrics:
        without = {", ".join(row.absent): row.metrics[name] for row in departures.rows}
        references = {row.name: row.metrics[name] for row in utility.rows}
        measured |= {by_metric("without", name): without, by_metric("references", name): references}
    return measured


def variant(group: str, setting: str, top: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Protections, top model and references of a setting; references common to all settings are trained at rate 0.

    Args:
        group: Group of the trial.
        setting: One of `SETTINGS`.
        top: Top model without further heads.
    """
    if setting == MULTI_HEAD:
        return {}, {**top, "kind": "multi_head"}, ("finetuned",)
    rate = float(setting.removeprefix("p "))
    if rate == 0:
        return {}, dict(top), (*REFERENCES.get(group, ("alone",)), "finetuned")
    return {"party_dropout": {"rate": rate}}, dict(top), ("finetuned",)


def _digits(
    names: Sequence[str], seed: int, privacy: Mapping[str, Any], top: Mapping[str, Any], compare: Sequence[str]
) -> Job:
    silent = {"every": "never"}
    train = {"seed": seed, "split": {"test": 0.2, "validation": 0.1}}
    sections = {"model": {"top": top}, "compare": list(compare)}
    return digits(names, {"privacy": privacy, "audit": silent}, silent, train, **sections)
