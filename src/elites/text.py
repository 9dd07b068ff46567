"""Names and other text of users, made safe to show: on a terminal, in figures, in names of folders."""

from __future__ import annotations

import hashlib
import re

MAX_SHOWN_LENGTH = 60  # characters of a name
MAX_NAME_BYTES = 100  # of a folder


def make_printable(text: object) -> str:
    """The text in one line, with no control characters."""
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
        for character in str(text)
    )


def shorten(text: object, max_length: int = MAX_SHOWN_LENGTH) -> str:
    """The text in one line; a long one is shortened in the middle, with an ellipsis."""
    line = make_printable(text)
    if len(line) <= max_length:
        return line
    end = (max_length - 1) // 3
    return f"{line[: max_length - 1 - end]}…{line[len(line) - end :]}"


def make_folder_name(text: str) -> str:
    """The text as the name of a folder; different texts have different names."""
    plain = re.sub(r"[\s:,]+", "-", text)  # these only separate words; for others, a hash is added
    plain, replaced = re.subn(r"[^\w.-]+", "-", plain)
    plain = plain.lstrip(".").rstrip("-.")
    if plain and not replaced and len(plain.encode()) <= MAX_NAME_BYTES:
        return plain
    raw = text if replaced or not plain else plain
    cut = plain.encode()[: MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{cut}-{_digest(raw)}" if cut else _digest(raw)


def make_file_name(text: str) -> str:
    """The text as a part of a file's name, in ASCII; a hash is added if more than separators change."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
    if re.fullmatch(r"[\w.]+([:,/\s-]+[\w.]+)*", text, re.ASCII) and len(plain) <= MAX_NAME_BYTES:
        return plain
    return f"{plain[: MAX_NAME_BYTES - 9]}-{_digest(text)}".strip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def format_duration(seconds: float) -> str:
    """A duration in its two largest units: days, hours, minutes or seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
