"""Label-independent releases: utility, label leak and feature leak beside those of end-to-end training."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutlayer.results.features import FeatureResult
from cutlayer.training.folder import RunFolder
from studies.label_free.page import label_free_page
from studies.label_free.settings import (
    CRITEO,
    DATA,
    EPSILONS,
    FIT_EPOCHS,
    LEARNING_CURVE,
    SMALL_BATCH,
    job_of,
    setting_of,
    settings_of,
)
from studies.page import Page
from studies.results import Results
from studies.trials import Study, Trial


class LabelFreeStudy(Study):
    """Sketches of several widths, trained fits and private releases, none of which a label has a part in."""

    name = "label-free"
    title = "Release without labels"
    source = "Weinberger et al. 2009 (arXiv 0902.2206); Bahri et al. 2022, SCARF (arXiv 2106.15147)"
    advice = (
        "Where labels matter more than features, let the partners release a sketch once: no message depends on a "
        "label, at no loss of test AUC on three of four tables of this size, and of 0.010 ± 0.006 on the fourth. Where "
        "features matter too, expect to pay: the sketch reveals most columns to a receiver who knows some rows. "
        "One as wide as the table reveals categories to a receiver who knows none."
    )
    settings = (
        "Data: Adult, the demo's three parties and schedule without its protections; Criteo, 137,139 rows, all "
        "features at the passive party; default of credit card clients as FATE splits it; bank marketing, the client's "
        "columns at the bank and those of the campaign at a call centre.\n\n"
        "`undefended` trains end to end: on Criteo preset `small` (five layers of 128 below the cut, batch 8192, Adam "
        f"1e-3, the best of 12 epochs on validation rows), and again as `{SMALL_BATCH}` with the schedule of the "
        "sketches: the best of 8 epochs of batch 512. The other settings release each row once (`train.release: "
        "once`), and the number is the width of the cut. `sketch` is `fit: {kind: sketch}`, with ten quantiles of each "
        "number or, on Criteo, `log1p` and `min_count: 3`; the top model is 128-128-1 on Criteo. `autoencoder` and "
        f"`contrastive` fit a bottom model `mlp` (128, width), linear at the cut, for {FIT_EPOCHS} epochs, on the "
        "first seed. `eps` adds "
        f"`dp_embedding` with `rescale: sphere`: {EPSILONS[0]:g} or {EPSILONS[1]:g} is the total epsilon of each "
        "passive party at delta 1e-5.\n\n"
        "With fewer rows of Criteo for training, more are for testing."
    )

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """Every setting of every data set, then two settings on fewer rows of Criteo; the seeds inside a data set."""
        for group, own in DATA.items():
            for seed in range(1, seeds + 1):
                for setting in settings_of(own, seed):
                    yield Trial(group, setting, seed, job_of(own, setting, data, seed))
        for seed in range(1, seeds + 1):
            for group, test in LEARNING_CURVE.items():
                for setting in (SMALL_BATCH, setting_of(CRITEO.headline)):
                    yield Trial(group, setting, seed, job_of(CRITEO, setting, data, seed, test))

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        """The ledger's statement about labels, and the feature leak of the reported party."""
        group = trial.group.partition(",")[0]
        results = {
            result.attack: result
            for result in folder.audit.features
            if result.party == DATA[group].party and result.release.endswith(("last recorded", "only release"))
        }
        totals = [total.epsilon for total in folder.summary.ledger.totals if total.protects == "labels"]
        return {"label_epsilon": totals[0] if totals else None, **_feature_leak(results)}

    def page(self, results: Results) -> Page:
        """Claims, and for each data set the three-way front."""
        return label_free_page(results)


def _feature_leak(results: dict[str, FeatureResult]) -> dict[str, float | None]:
    """R2 of the decoder, as the mean over columns and weighted by variance, and AUC of inferred columns."""
    values: dict[str, float | None] = {}
    if (inversion := results.get("inversion")) is not None:
        mse, baseline = inversion.metrics["mse"], inversion.metrics["baseline_mse"]
        values |= {"r2": inversion.value, "weighted_r2": 1 - mse / baseline if mse and baseline else None}
    if (attribute := results.get("attribute")) is not None:
        aucs = [column.value for column in attribute.columns if column.value is not None]
        values |= {"attribute": statistics.fmean(aucs), "best_attribute": max(aucs)}
    return values
