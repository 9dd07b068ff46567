"""MuJoCo's library and the layout of its structs, as the installed version has them.

Arrays of `mjData` come from MuJoCo's Python module, as views of its memory. Three fields of the struct have
no view: the time, the number of contacts and the pointer to them. Their offsets follow from the description
of the structs that the module brings with it. They are compared with the module's own values before anything
is read.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites.errors import ElitesError
from elites.files import make_one_line
from elites.text import shorten

SIZES = {
    **dict.fromkeys(("mjtNum", "double", "mjtSize", "size_t", "uintptr_t", "uint64_t", "int64_t"), 8),
    **dict.fromkeys(("int", "float", "unsigned int", "uint32_t", "int32_t"), 4),
    **dict.fromkeys(("mjtBool", "mjtByte", "char", "unsigned char"), 1),
}  # of C types, in bytes; each is aligned to its size
POINTER = 8
TOUCHING = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.09"><freejoint/><geom size="0.1"/></body>
    <body pos="1 0 0.09"><freejoint/><geom size="0.1"/></body>
  </worldbody>
</mujoco>
"""  # two balls on the floor: two contacts


class Sizes(NamedTuple):
    """Sizes of a model."""

    qpos: int
    qvel: int
    bodies: int
    actuators: int


class Layout(NamedTuple):
    """Offsets in `mjData`, and the dtype of `mjContact`."""

    time: int
    contact_count: int
    contacts: int
    contact: np.dtype


def missing_package() -> str:
    """A line that names a package that MuJoCo's tasks need and that is not installed; empty if all are."""
    missing = [name for name in ("mujoco", "gymnasium") if find_spec(name) is None]
    return (
        f"mujoco tasks need {missing[0]}, which is not installed; install elites[mujoco]" if missing else ""
    )


def require_mujoco() -> Any:
    """MuJoCo's Python module; an error if it is not installed."""
    if lack := missing_package():
        raise ElitesError(lack)
    import mujoco

    return mujoco


@contextlib.contextmanager
def quiet_mujoco() -> Iterator[None]:
    """Hides MuJoCo's warnings, if it is loaded. A handler that is installed meanwhile stays."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        yield
        return

    def ignore(message: str) -> None:
        """Ignores a warning that users cannot act on."""

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(ignore)
    try:
        yield
    finally:
        if mujoco.get_mju_user_warning() is ignore:
            mujoco.set_mju_user_warning(before)


def model_path(model: str) -> Path:
    """The file of a model: a path, or the name of one of Gymnasium's."""
    require_mujoco()
    import gymnasium

    path = Path(model).expanduser()
    if path.is_file():
        return path
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    if path.name == model and (assets / model).is_file():
        return assets / model
    raise ElitesError(f"{model} is not a file, nor one of Gymnasium's models in {assets}")


def read_spec(path: str) -> Any:
    """The model in a file, not yet compiled."""
    try:
        return require_mujoco().MjSpec.from_file(path)
    except ValueError as error:
        raise ElitesError(f"MuJoCo cannot read {path}: {make_one_line(error)}") from None


def compile_spec(spec: Any, path: str) -> Any:
    """The compiled model. MuJoCo's warnings about Gymnasium's models are hidden."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return spec.compile()
    except ValueError as error:
        raise ElitesError(f"MuJoCo cannot compile {path}: {make_one_line(error)}") from None


def identify(model: Any, kind: str, name: str | int, owner: str) -> int:
    """The number of a body, a geom or a key (frame) of a model, from its name or its number."""
    number: int = name if isinstance(name, int) else require_mujoco().mj_name2id(model, _kind(kind), name)
    if not 0 <= number < _count(model, kind):
        raise ElitesError(f"the model of {owner} has no {kind} {name!r}; {list_names(model, kind)}")
    return number


def find_geoms(model: Any, foot: str, owner: str) -> list[int]:
    """The numbers of the geoms of a foot, which is a geom, or a body with all its geoms."""
    number: int = require_mujoco().mj_name2id(model, _kind("geom"), foot)
    if number >= 0:
        return [number]
    body: int = require_mujoco().mj_name2id(model, _kind("body"), foot)
    if body < 0:
        raise ElitesError(
            f"the model of {owner} has no geom or body {foot!r} that could be a foot; "
            f"{list_names(model, 'geom')}, {list_names(model, 'body')}"
        )
    geoms: list[int] = np.flatnonzero(model.geom_bodyid == body).tolist()
    if not geoms:
        raise ElitesError(f"body {foot!r} of the model of {owner} has no geoms; it cannot be a foot")
    return geoms


def list_names(model: Any, kind: str) -> str:
    """The names of all objects of a kind in a model, for a message."""
    mujoco = require_mujoco()
    names = [mujoco.mj_id2name(model, _kind(kind), number) for number in range(_count(model, kind))]
    plural = {"geom": "geoms", "body": "bodies", "key": "keys"}[kind]
    return f"its {plural} with names are {shorten(', '.join(filter(None, names)), 300) or 'none'}"


def _kind(kind: str) -> Any:
    return getattr(require_mujoco().mjtObj, f"mjOBJ_{kind.upper()}")


def _count(model: Any, kind: str) -> int:
    counts: dict[str, int] = {"geom": model.ngeom, "body": model.nbody, "key": model.nkey}
    return counts[kind]


def model_sizes(model: str) -> Sizes:
    """The sizes of the model in a file."""
    return read_sizes(read_model(model_path(model)))


def read_sizes(model: Any) -> Sizes:
    """The sizes of a compiled model."""
    return Sizes(model.nq, model.nv, model.nbody, model.nu)


def read_model(path: Path) -> Any:
    """The compiled model in a file. It is shared and must not be changed."""
    return _read_model(str(path), modification_time(path))


@cache
def _read_model(path: str, modified: int) -> Any:
    return compile_spec(read_spec(path), path)


def modification_time(path: Path) -> int:
    """The time of the last change of a file."""
    return path.stat().st_mtime_ns


@cache
def library_path() -> Path:
    """The shared library of the installed version."""
    mujoco = require_mujoco()
    folder = Path(mujoco.__file__).parent
    names = (f"libmujoco.so.{mujoco.__version__}", f"libmujoco.{mujoco.__version__}.dylib", "mujoco.dll")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise ElitesError(f"{folder} holds no MuJoCo library ({' or '.join(names)}); install the mujoco wheel")


@cache
def read_checked_layout() -> Layout:
    """The layout of the installed version's structs; an error if it is not the one in memory."""
    mujoco = require_mujoco()
    try:
        layout = read_layout()
    except (ImportError, LookupError, AttributeError, TypeError, ValueError) as error:
        raise make_version_error(f"its structs are described in another way ({error!r})") from None
    model = mujoco.MjModel.from_xml_string(TOUCHING)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    count, contacts = view_contacts(data, layout)
    if count[0] != data.ncon or data.ncon != 2:
        raise make_version_error("ncon is at another place")
    data.time = 0.25
    if view_time(data, layout)[0] != data.time:
        raise make_version_error("time is at another place")
    fields: Any = layout.contact.fields
    computed = [contacts[0] + fields[name][1] for name in ("geom", "other_geom", "exclude")]
    geoms, exclude = data.contact.geom, data.contact.exclude
    actual = [geoms.ctypes.data, geoms.ctypes.data + 4, exclude.ctypes.data]
    if computed != actual or layout.contact.itemsize != geoms.strides[0]:
        raise make_version_error("contacts are at another place")
    return layout


def make_version_error(reason: str) -> ElitesError:
    """The error for a version of MuJoCo with unknown structs."""
    version = require_mujoco().__version__
    return ElitesError(f"mujoco {version} cannot be used: {reason}; install another mujoco")


def view_contacts(data: Any, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Views of an `MjData`: the number of contacts, and the address of the first one."""
    start = data._address
    count = (ctypes.c_int32 * 1).from_address(start + layout.contact_count)
    contacts = (ctypes.c_int64 * 1).from_address(start + layout.contacts)
    return np.ctypeslib.as_array(count), np.ctypeslib.as_array(contacts)


def view_time(data: Any, layout: Layout) -> np.ndarray:
    """A view of the time in an `MjData`."""
    return np.ctypeslib.as_array((ctypes.c_double * 1).from_address(data._address + layout.time))


def read_layout() -> Layout:
    """The layout that follows from MuJoCo's own description of its structs."""
    from mujoco.introspect.structs import STRUCTS

    offsets, _ = _offsets(STRUCTS, "mjData")
    fields, size = _offsets(STRUCTS, "mjContact")
    contact = np.dtype(
        {
            "names": ["geom", "other_geom", "exclude"],
            "formats": ["<i4"] * 3,
            "offsets": [fields["geom"], fields["geom"] + 4, fields["exclude"]],
            "itemsize": size,
        }
    )
    return Layout(offsets["time"], offsets["ncon"], offsets["contact"], contact)


def _offsets(structs: Any, name: str) -> tuple[dict[str, int], int]:
    """The offset of each field of a struct, and its size."""
    offsets, end, most = {}, 0, 1
    for member in structs[name].fields:
        size, alignment = _size(structs, member.type)
        end = -(-end // alignment) * alignment
        offsets[member.name], end, most = end, end + size, max(most, alignment)
    return offsets, -(-end // most) * most


def _size(structs: Any, kind: Any) -> tuple[int, int]:
    """The size and the alignment of a C type."""
    if hasattr(kind, "extents"):
        size, alignment = _size(structs, kind.inner_type)
        return size * int(np.prod(kind.extents)), alignment
    if hasattr(kind, "inner_type"):
        return POINTER, POINTER
    if kind.name in SIZES:
        return SIZES[kind.name], SIZES[kind.name]
    _, size = _offsets(structs, kind.name)
    inner = [_size(structs, member.type)[1] for member in structs[kind.name].fields]
    return size, max(inner)
