"""The section `privacy` of a party with private embeddings, by the product's protection or by the published one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.protections.dp_embedding import DPEmbedding

ADAPTIVE = "cutlayer_published.embedding.protection:AdaptiveEmbedding"
"""The published protection's name in a job; its import needs consent."""


def privacy_of(noise: Mapping[str, Any] | None) -> dict[str, Any]:
    """Section `privacy` of a party: `dp_embedding`, or `AdaptiveEmbedding` where a term of it is set."""
    if noise is None:
        return {}
    return {ADAPTIVE if noise.keys() & {"estimate", "adjust"} else DPEmbedding.name: noise}


def noise_of(protections: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """The settings that `privacy_of` made a section of; `None` without noise."""
    noise = [protections[name] for name in (ADAPTIVE, DPEmbedding.name) if name in protections]
    return dict(noise[0] or {}) if noise else None
