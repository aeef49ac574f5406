"""Rebuilt images beside the true ones, as one SVG file: a row for each setting."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from cutlayer.report.png import png_uri
from cutlayer.report.svg import element

_NAME, _PAIR, _HEAD, _TALL, _ROW = 150, 110, 24, 72, 100
_STYLE = "text{font:11.5px system-ui,sans-serif;fill:#596066}.name{fill:#1c1f22}image{image-rendering:pixelated}"


def gallery(rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], label: str) -> str:
    """An SVG file with the images inside.

    Args:
        rows: a name, and pictures as `audit.json` holds them; the first row's titles stand above the columns.
        label: what a screen reader says.
    """
    columns = max((len(pictures) for _, pictures in rows), default=0)
    wide, high = _NAME + _PAIR * columns, _HEAD + _ROW * len(rows)
    heads = [
        element("text", str(picture["title"]), x=_NAME + _PAIR * at, y=15)
        for at, picture in enumerate(rows[0][1] if rows else ())
    ]
    whole = element(
        "svg",
        element("title", label),
        Markup("<style>{}</style>").format(Markup(_STYLE)),  # noqa: S704 (constant text)
        element("rect", width=wide, height=high, fill="#fff"),
        *heads,
        *(_row(name, pictures, _HEAD + _ROW * place) for place, (name, pictures) in enumerate(rows)),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {wide} {high}",
        width=wide,
        height=high,
        role="img",
    )
    return f"{whole}\n"


def _row(name: str, pictures: Sequence[Mapping[str, Any]], top: int) -> Markup:
    setting, _, release = name.partition(": ")
    parts = [
        element("text", setting, class_="name", x=8, y=top + 32),
        element("text", release, x=8, y=top + 48),
    ]
    for at, picture in enumerate(pictures):
        left = _NAME + _PAIR * at
        _, height, width = picture["shape"]
        across = round(_TALL * width / height)
        for place, key in enumerate(("truth", "rebuilt")):
            uri = png_uri(base64.b64decode(picture[key]), tuple(picture["shape"]))
            size = {"width": across, "height": _TALL, "preserveAspectRatio": "none"}
            parts.append(element("image", href=uri, x=left + place * (across + 4), y=top, **size))
        parts.append(element("text", f"PSNR {picture['psnr']:.1f} dB", x=left, y=top + _TALL + 14))
    return element("g", *parts)
