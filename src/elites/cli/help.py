"""Help texts of commands, from the docstrings of their fields."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


def with_help(command: type[Any], algorithm: type[Any] | None = None) -> type[Any]:
    """The command with the help of each option as flowing text.

    Options that a command shares with others come after its own, and the hyper-parameters of an `algorithm`,
    given by its configuration, in a group at the end. A default that is None or empty is not shown: the text
    says what happens without the option.
    """
    texts, types = read_field_docstrings(command), get_type_hints(command, include_extras=True)
    classes = [set(inspect.get_annotations(base)) for base in command.__mro__]
    own = {field.name for field in dataclasses.fields(algorithm)} if algorithm else set()
    described: dict[bool, list[Any]] = {False: [], True: []}
    for field in sorted(
        dataclasses.fields(command),
        key=lambda field: next(place for place, names in enumerate(classes) if field.name in names),
    ):
        text = _describe(types[field.name], texts.get(field.name))
        described[field.name in own].append((field.name, Annotated[types[field.name], text], field))
    if own:
        group = dataclasses.make_dataclass("Algorithm", described[True], kw_only=True)
        group.__doc__ = "Hyper-parameters of the algorithm."
        default = dataclasses.field(default_factory=group)
        described[False].append(("algorithm", Annotated[group, tyro.conf.OmitArgPrefixes], default))
    result = dataclasses.make_dataclass(command.__name__, described[False], kw_only=True)
    result.__doc__ = command.__doc__
    return result


def read_field_docstrings(kind: type[Any]) -> dict[str, str]:
    """The string below each field of a dataclass and of its bases, in one line."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):  # it has no source, or that has changed
            continue
        body = next((node.body for node in tree.body if isinstance(node, ast.ClassDef)), [])
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def _describe(kind: Any, text: str | None) -> Any:
    """What tyro shows for an option of a type."""
    return tyro.conf.arg(help=text, help_behavior_hint=_format_default, metavar=_choose_metavar(kind))


def _format_default(value: str) -> str:
    """The end of the text of an option, given its default."""
    return "" if value in ("None", "", "''") else f"(default: {value})"


def _choose_metavar(kind: Any) -> str | None:
    """The values of an option, without None; None where tyro knows them."""
    if get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
        return next((one.metavar for one in metadata if getattr(one, "metavar", None)), _choose_metavar(kind))
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        return "|".join(
            "{True,False}" if one is bool else _choose_metavar(one) or one.__name__ for one in kinds
        )
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    if get_origin(kind) is tuple:
        return f"[{_choose_metavar(get_args(kind)[0])} …]"
    return METAVARS.get(kind)
