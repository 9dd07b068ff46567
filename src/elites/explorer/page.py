"""The page's file: markup, style, scripts and data in one, with a policy that lets it load nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

PALETTES = ("viridis", "cividis", "magma", "PuOr", "managua")
STOPS = 64  # colours of a palette, between which the page interpolates
SCRIPTS = (  # in this order: they share one scope
    *("data", "format", "colour", "state", "geometry", "filters", "picture", "map", "marks", "gestures"),
    *("legend", "gaits", "painter", "stage", "elite", "charts", "table", "export", "app"),
)


def make_page(title: str, header: dict[str, Any], blocks: str, *, served: bool = False) -> str:
    """The whole file. Only a page that is served may send requests, and only to its own server."""
    style = _file("style.css")
    scripts = [_file(f"{name}.js") for name in SCRIPTS]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        f"img-src data: blob:; connect-src '{'self' if served else 'none'}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": f"<style>{style}</style>",
        "header": as_json({**header, "palettes": palettes()}),
        "blocks": blocks,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return re.sub(r"\$(\w+)\$", lambda marker: parts[marker[1]], _file("page.html"))


def as_json(value: Any) -> str:
    """JSON that can be embedded in a page: no text of a user can end the element. NaN becomes null."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def palettes() -> dict[str, list[str]]:
    """The colours of each palette, from low to high."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return {name: [to_hex(colormaps[name](stop / (STOPS - 1))) for stop in range(STOPS)] for name in PALETTES}


def _file(name: str) -> str:
    return resources.files("elites.explorer").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
