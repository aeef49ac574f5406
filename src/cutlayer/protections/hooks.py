"""The names of the hooks, and which of them a protection acts at."""

from __future__ import annotations

from typing import Any

from cutlayer.protections.base import Protection

HOOKS = ("labels", "embedding_out", "embeddings_in", "cut_gradient", "gradient_out", "local_loss", "update")
"""Hooks whose calls are counted, in the order in which a training step calls them."""


def hooks_of(protection: Protection[Any]) -> list[str]:
    """The hooks that a protection acts at."""
    return [hook for hook in HOOKS if acts_at(protection, hook)]


def acts_at(protection: Protection[Any], hook: str) -> bool:
    """Whether a protection acts at a hook: its class overrides the method."""
    return getattr(type(protection), hook) is not getattr(Protection, hook)
