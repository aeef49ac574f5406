"""Class share of embeddings, and how many rows the confidence mask of adjusting leaves."""

from __future__ import annotations

from cutlayer.config import Job
from cutlayer.training.folder import RunFolder
from cutlayer_published.embedding.adjust import AdjustConfig
from studies.clip_bound.settings import FUZZIFIER, THRESHOLD
from studies.feature_privacy.diagnostics import embedding_values, gradient_values
from studies.feature_privacy.settings import CLIP
from studies.reasons.settings import ADJUSTED


def masked_values(job: Job, folder: RunFolder) -> dict[str, float]:
    """Diagnostics of the first passive party.

    Args:
        job: Job of the run.
        folder: Run folder.

    Returns:
        `class_share` of the embedding, and the values of `gradient_values` under the mask of this study.
    """
    party = ADJUSTED.parties[0]
    clusters = AdjustConfig(classes=ADJUSTED.classes, fuzzifier=FUZZIFIER, threshold=THRESHOLD)
    share = embedding_values(job, folder, party, CLIP)["class_share"]
    return {"class_share": share, **gradient_values(job, folder, party, clusters)}
