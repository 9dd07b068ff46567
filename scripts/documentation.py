"""What the site has beside the pages in docs/: pages of the root, notebooks as pages, tables of fields."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from griffe import Attribute, Class, Docstring, Extension
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

    def on_class(self, *, cls: Class, **kwargs: Any) -> None:
        fields = [
            member
            for member in cls.members.values()
            if member.is_attribute
            and not member.name.startswith("_")
            and not ("property" in member.labels and member.docstring)
        ]
        if not fields or cls.docstring is None:
            return
        rows = []
        for field in fields:
            kind = "" if field.annotation else f" ({field.value})"
            text = textwrap.indent(_description(field), "        ").strip()
            rows.append(f"    {field.name}{kind}: {text}")
            field.docstring = None  # the table is enough
        text = "\n".join([cls.docstring.value, "", "Attributes:", *rows])
        cls.docstring = Docstring(text, lineno=cls.docstring.lineno, parent=cls)


def _description(field: Attribute) -> str:
    if field.docstring is not None:
        return field.docstring.value
    line = field.lines_collection[field.filepath][field.endlineno - 1]
    comment = re.search(r"  # (.+)$", line)
    return comment[1][0].upper() + comment[1][1:] if comment else "-"
