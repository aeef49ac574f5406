"""Shows CONTRIBUTING.md and CHANGELOG.md on the documentation site, with links as seen from `docs/`.

It is a hook of MkDocs (`hooks` in mkdocs.yml). A snippet would not do: its links are those of the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the file in place of the page; called by MkDocs for every page."""
    name = FILES.get(page.file.src_uri)
    return markdown if name is None else as_page((ROOT / name).read_text(encoding="utf-8"))


def as_page(text: str) -> str:
    """The text with links of the root as links of `docs/`."""
    text = text.replace("](docs/", "](")
    for page, name in FILES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text
