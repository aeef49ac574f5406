"""The privacy card of a run: evidence for a data-protection impact assessment, as JSON, HTML and Markdown."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from cutlayer.cli.app import emit, say
from cutlayer.report.rounding import plain
from cutlayer.storage.durable import write_whole
from cutlayer.training.folder import RunFolder
from cutlayer_annex.annex import annex_html, annex_markdown
from cutlayer_annex.build import build_card
from cutlayer_annex.card import PrivacyCard

_FILES = {"json": "privacy_card.json", "html": "privacy_annex.html", "markdown": "privacy_annex.md"}


def dpia(folder: RunFolder, *, as_json: bool, as_markdown: bool) -> None:
    """Write the privacy card and its annex into a run folder, and show who could learn what.

    Args:
        folder: The run folder, of either side.
        as_json: Whether to print the card as JSON.
        as_markdown: Whether to print the annex as Markdown.

    Raises:
        RunFolderError: The run has not ended.
        ConfigError, DataError: A subgroup cannot be computed.
    """
    with folder.locked("a report"):
        card = build_card(folder.path)
        paths = write_card(card, folder.path)
    if as_json:
        emit(card.model_dump(mode="json"))
        return
    if as_markdown:
        sys.stdout.write(annex_markdown(card))
        return
    console = Console()
    for sentence in (card.statement, *card.learns):
        console.print(plain(sentence), highlight=False, markup=False)
    blanks = sum(field.value is None for field in card.fields)
    say(f"{blanks} fields are blank: for the controller", *(f"{kind:<9}{path}" for kind, path in paths.items()))


def write_card(card: PrivacyCard, folder: Path) -> dict[str, Path]:
    """Write `privacy_card.json`, `privacy_annex.html` and `privacy_annex.md`; returns their paths by kind."""
    paths = {kind: folder / name for kind, name in _FILES.items()}
    card.write(paths["json"])
    write_whole(paths["html"], annex_html(card))
    write_whole(paths["markdown"], annex_markdown(card))
    return paths
