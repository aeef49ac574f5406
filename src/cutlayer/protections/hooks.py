"""The names of the hooks, and which of them a protection acts at."""

from __future__ import annotations

from typing import Any

from cutlayer.protections.base import Protection

HOOKS = ("labels", "embedding_out", "embeddings_in", "cut_gradient", "gradient_out", "local_loss", "update")
"""Hooks whose calls are counted, in the order in which a training step calls them."""


def hooks_of(protection: Protection[Any]) -> list[str]:
    """The hooks that a protection acts at."""
    return [hook for hook in HOOKS if protection.acts_at(hook)]
