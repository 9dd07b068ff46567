"""`elites tasks`, `elites algorithms` and `elites install-bullet`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from elites.cli.command import read_first_line


@dataclass(frozen=True)
class Tasks:
    """List the tasks and their sizes, and why some cannot run here."""

    def run(self) -> int:
        from elites.policies import parameter_count
        from elites.tasks import TASKS

        rows = [("task", "observation", "action", "descriptor", "controller", "cells", "steps", "QD offset")]
        rows += [
            (
                task.name,
                str(task.observation_size),
                str(task.action_size),
                str(task.descriptor_size),
                str(parameter_count(task.controller_sizes())),
                str(task.cells),
                str(task.episode_length),
                f"{task.qd_offset:.2f}",
            )
            for task in TASKS.values()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        unavailable = ["", *(task.unavailable_reason() for task in TASKS.values())]
        reasons = [reason for reason in dict.fromkeys(unavailable) if reason]
        for (name, *numbers), reason in zip(rows, unavailable, strict=True):
            cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
            mark = f"  ({reasons.index(reason) + 1})" if reason else ""
            print("  ".join((name.ljust(widths[0]), *cells)) + mark)
        for number, reason in enumerate(reasons, 1):
            print(f"({number})  cannot run here: {reason}")
        print("gym:ID       any Gymnasium environment with continuous actions, described by --descriptor")
        print("mujoco:FILE  a robot of your own: a model in MuJoCo's XML")
        print("module:task  a task of your own")
        return 0


@dataclass(frozen=True)
class Algorithms:
    """List the algorithms and their hyper-parameters."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")] = ()
    """Algorithms to list; module:Class for one of your own. Default: all that are built in."""

    def run(self) -> int:
        from elites.algorithms import ALGORITHMS, find_algorithm

        for name, algorithm in {name: find_algorithm(name) for name in self.names or ALGORITHMS}.items():
            print(f"{name}: {read_first_line(algorithm.Config)}")
            for field in dataclasses.fields(algorithm.Config):
                print(f"  --{field.name.replace('_', '-'):<22} {_as_typed(field.default)}")
        if not self.names:
            print("module:Class: an algorithm of your own, a subclass of elites.Algorithm")
        return 0


def _as_typed(default: object) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


@dataclass(frozen=True, kw_only=True)
class InstallBullet:
    """Download the Bullet library, the physics of the qd- tasks, if pybullet has no wheel for this Python."""

    folder: Path | None = None
    """Folder for the files; set ELITES_BULLET to this folder to use them. Default: the cache folder."""

    def run(self) -> int:
        from elites.tasks.qdgym.install import install_bullet

        install_bullet(self.folder)
        return 0
