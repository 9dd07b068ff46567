"""What the site has beside the pages in docs/: pages of the root, notebooks as pages, tables of fields."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Attribute, Class, Docstring, Extension, Module
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the root, with links that hold in docs/, and notebooks as pages. Called by MkDocs."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        for other, name in PAGES.items():
            text = text.replace(f"]({name}", f"]({other}")
        files.append(File.generated(config, page, content=text))
    for notebook in list(files):
        if notebook.src_uri.endswith(".ipynb"):
            text = _page(notebook.src_uri, json.loads(notebook.content_string))
            files.append(File.generated(config, notebook.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def _page(path: str, notebook: dict[str, Any]) -> str:
    """The text and the code of a notebook, and a link to it behind its title."""
    fences = {"markdown": "{}", "code": "```python\n{}\n```"}
    cells = [fences[cell["cell_type"]].format("".join(cell["source"])) for cell in notebook["cells"]]
    link = f"[The notebook itself]({Path(path).name}) shows the results, too, when it is run."
    return "\n\n".join([cells[0], link, *cells[1:]])


class Fields(Extension):
    """The fields of a class as one table: name, type, and its docstring or the comment behind it."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Adds the tables of all classes. Called when all of their bases are known."""
        described = [(cls, _table(cls)) for cls in _classes(pkg) if cls.docstring is not None]
        for cls, rows in described:
            if rows and cls.docstring is not None:
                text = "\n".join([cls.docstring.value, "", "Attributes:", *rows])
                cls.docstring = Docstring(text, lineno=cls.docstring.lineno, parent=cls)
                for field in _fields(cls):
                    field.docstring = None  # the table is enough


def _classes(where: Module | Class) -> Iterator[Class]:
    for member in where.members.values():
        if isinstance(member, Class):
            yield member
        if isinstance(member, Module | Class):
            yield from _classes(member)


def _fields(cls: Class) -> list[Attribute]:
    return [
        member
        for member in cls.members.values()
        if isinstance(member, Attribute)
        and not member.name.startswith("_")
        and not ("property" in member.labels and member.docstring)
    ]


def _table(cls: Class) -> list[str]:
    """A row for each field of a class, and for those of its bases that are only there to be shared."""
    rows: dict[str, str] = {}
    for one in (cls, *(base for base in cls.mro() if base.module.name == "options")):
        for field in _fields(one):
            kind = "" if field.annotation else f" ({field.value})"
            text = textwrap.indent(_description(field), "        ").strip()
            if rows.get(field.name, "").endswith(": -"):  # another default, described in the base
                rows[field.name] = rows[field.name][:-1] + text
            rows.setdefault(field.name, f"    {field.name}{kind}: {text}")
    return list(rows.values())


def _description(field: Attribute) -> str:
    if field.docstring is not None:
        return field.docstring.value
    line = field.lines_collection[field.filepath][field.endlineno - 1]
    comment = re.search(r"  # (.+)$", line)
    return comment[1][0].upper() + comment[1][1:] if comment else "-"
