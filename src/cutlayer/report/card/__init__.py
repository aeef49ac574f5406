"""The privacy card of a run: evidence for a data-protection impact assessment, as JSON, HTML and Markdown."""

from __future__ import annotations

from pathlib import Path

from cutlayer.report.card.annex import annex_html, annex_markdown
from cutlayer.report.card.build import build_card
from cutlayer.results.privacy_card import PrivacyCard
from cutlayer.storage.durable import write_whole

__all__ = ["PrivacyCard", "annex_html", "annex_markdown", "build_card", "write_card"]


def write_card(card: PrivacyCard, folder: Path) -> dict[str, Path]:
    """Write `privacy_card.json`, `privacy_annex.html` and `privacy_annex.md`; returns their paths by kind."""
    paths = {kind: folder / name for kind, name in _FILES.items()}
    card.write(paths["json"])
    write_whole(paths["html"], annex_html(card))
    write_whole(paths["markdown"], annex_markdown(card))
    return paths


_FILES = {"json": "privacy_card.json", "html": "privacy_annex.html", "markdown": "privacy_annex.md"}
