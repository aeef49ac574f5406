"""What a total privacy budget of the passive parties' embeddings buys, spent in every epoch or once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutlayer.accounting import GaussianRelease, Ledger
from cutlayer.config import Job, validated
from cutlayer.kernels.gaussian_mechanism import best_auc
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.quitting import alone_name
from studies.base import Cell, Found, Study
from studies.claims import Runs
from studies.data import adult
from studies.embedding_budget_claims import (
    DELTA,
    FITS,
    GROUPS,
    METHODS,
    OPENING,
    PAPER_FORM,
    TOTALS,
    WIDTHS,
    OnceFit,
    budgeted,
    noiseless,
    unprotected,
    widths,
)
from studies.embedding_budget_page import BudgetPage
from studies.halves import Images

IMAGES = Images("MNIST halves", "mnist/mnist.npz", {"kind": "cnn"}, GROUPS["MNIST halves"].epochs, 128, rows=12_000)
TOP: Mapping[str, Any] = {"kind": "mlp", "hidden": [32]}
OWN: Mapping[str, Mapping[str, Any]] = {"Adult": {"kind": "mlp", "hidden": [64, 32]}, "MNIST halves": {"kind": "cnn"}}
"""The active party's own bottom model, the same at every width of the cut."""
ADULT_TRAIN: Mapping[str, Any] = {
    "epochs": GROUPS["Adult"].epochs,
    "batch_size": 512,
    "optimizer": {"kind": "adam", "lr": 2e-3},
}


class EmbeddingBudgetStudy(Study):
    """Adult and halves of MNIST at four totals and four widths: the paper's form, ours per epoch, ours once."""

    name = "embedding-budget"
    title = "What an embedding's privacy budget buys"
    source = "Mi et al. 2023 (arXiv 2308.02362); Balle and Wang 2018 (arXiv 1805.06530)"
    settings = (
        f"Adult, 48,842 rows at the demo's three parties, {GROUPS['Adult'].epochs} epochs of batch 512, Adam 2e-3; "
        f"MNIST, 12,000 rows, the left half of each image at the active party, {IMAGES.epochs} epochs of batch "
        f"{IMAGES.batch}, Adam 1e-3. The best epoch on validation rows is kept. The active party's own bottom model "
        "is the same in all trainings (`mlp` of 64 and 32; `cnn`). At the passive parties it is `mlp` of 64 and the "
        "width of the cut, or `cnn`, with `cut: linear`, so that directions are not confined to positive ones; "
        "principal components need a `linear` one, over the columns or the pixels. Every passive party of a training "
        "has the same protection; the total is each one's own, for its own rows, at delta "
        f"{DELTA:g}. Rows are clipped to norm 1, or brought to it (`rescale: sphere`).\n\n"
        "Three ways to spend a total: the *paper's form* (`rescale: paper`) with its noise set as if all releases of "
        "the run together were to cost the total; *per epoch*, ours with `rescale: sphere` and `per: run`; *once*, "
        "ours with `release: once` and a bottom model that each party fits before (`pca`: principal components "
        f"of its own columns; `gradients`: fitted to the task gradients that come back in the first {OPENING} epochs, "
        "in which zeros stand for its embedding). "
        "About half an hour a seed on one core, an hour and a half for three.\n\n"
        "What differs from the paper: its epsilon is that of one release, calibrated by a formula that is proven "
        "below epsilon 1, and it does not add releases up."
    )

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """Both data sets, each width without protection and then with each total and method; the seeds outermost."""
        images = IMAGES.tables(data)
        for seed in range(1, seeds + 1):
            yield from _cells("Adult", seed, {})
            yield from _cells(IMAGES.group, seed, images)

    def measure(self, cell: Cell, folder: RunFolder) -> dict[str, Any]:
        """The active party alone where it was trained, and what the ledger says was spent."""
        utility = folder.read_json("summary.json")["utility"]
        wanted = alone_name(cell.job.active)
        alone = [row["metrics"][utility["metric"]] for row in utility["rows"] if row["name"] == wanted]
        return {**({"alone": alone[0]} if alone else {}), **spent(Ledger.from_json(folder.read_json("ledger.json")))}

    def page(self, found: Sequence[Found]) -> str:
        """Claims, how far `once` came and why, and a table and a figure for each data set."""
        return BudgetPage(Runs(found)).text()

    def figures(self, found: Sequence[Found]) -> dict[str, str]:
        """The metric by total, one for each data set."""
        return BudgetPage(Runs(found)).figures()


def spent(ledger: Ledger) -> dict[str, Any]:
    """What the passive party that spends most has spent, and what that bounds; nothing without protection.

    Returns:
        `condition` and `why`, of which one is empty; and where a theorem holds `epsilon`, `releases`, and the bounds on
        the ROC AUC of a yes-or-no fact, from all releases of a row (`auc_all`) and from one (`auc_one`).
    """
    totals = [total for total in ledger.totals if total.protects == "features"]
    if not totals:
        return {}
    most = max(totals, key=lambda total: float("inf") if total.epsilon is None else total.epsilon)
    if most.epsilon is None:
        return {"condition": "", "why": most.why}
    events = [entry.event for entry in ledger.entries if entry.party == most.party]
    multiplier = min(event.noise_multiplier for event in events if isinstance(event, GaussianRelease))
    return {
        "condition": most.condition,
        "why": "",
        "epsilon": most.epsilon,
        "releases": most.releases,
        "auc_all": most.auc_bound,
        "auc_one": best_auc(1 / multiplier),
    }


def _cells(group: str, seed: int, tables: Mapping[str, Any]) -> Iterator[Cell]:
    """Everything of one data set and seed; the reference is trained once."""
    for width in WIDTHS:
        compare = ("alone",) if width == WIDTHS[0] else ()
        yield Cell(group, unprotected(width), seed, _job(group, seed, width, compare=compare), tables)
    for fit in FITS:
        for width in widths(group, fit.name):
            yield Cell(group, noiseless(fit, width), seed, _job(group, seed, width, fit=fit), tables)
    fits = {fit.name: fit for fit in FITS}
    for total in TOTALS:
        for method in METHODS:
            rescale = "paper" if method == PAPER_FORM else "sphere"
            noise = {"clip": 1.0, "epsilon": total, "delta": DELTA, "rescale": rescale}
            for width in widths(group, method):
                job = _job(group, seed, width, {"dp_embedding": noise}, fits.get(method))
                yield Cell(group, budgeted(method, total, width), seed, job, tables)


def _job(
    group: str,
    seed: int,
    width: int,
    privacy: Mapping[str, Any] | None = None,
    fit: OnceFit | None = None,
    compare: Sequence[str] = (),
) -> Job:
    """The data set's job with this protection at every passive party, which releases once where there is a fit."""
    if group == "Adult":
        job, train = adult(seed, {}, TOP, compare), dict(ADULT_TRAIN)
    else:
        job, train = IMAGES.job(seed, {}, compare=compare), {}
    raw = job.model_dump()
    for name in job.passives:
        raw["parties"][name] |= {"privacy": privacy or {}, "fit": fit.fit if fit else None}
    own = OWN[group]
    cut: dict[str, Any] = {"width": width} if group != "Adult" else {"hidden": [64, width]}
    bottom = {"kind": own["kind"], **cut, "cut": "linear"}
    if fit and fit.kind:
        bottom = {"kind": fit.kind, "width": width}
    raw["model"]["bottom"] = {job.active: own, **dict.fromkeys(job.passives, bottom)}
    raw["train"] |= train
    if fit:
        raw["train"] |= {"release": "once", **fit.train}
    return validated(Job, raw, "study")
