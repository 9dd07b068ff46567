"""The ancestors of a run's elites that are not elites any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from elites.errors import ElitesError
from elites.results.archive import SavedArchive
from elites.results.folder import RunFolder
from elites.results.lineage import Lineage

MAX_ANCESTORS = 40_000  # in a page


@dataclass(frozen=True)
class Ancestors:
    """Ancestors `[n, …]` in the order of their evaluations."""

    evaluation: np.ndarray
    parents: np.ndarray
    cell: np.ndarray
    fitness: np.ndarray
    generation: np.ndarray
    operator: np.ndarray  # names
    missing_reason: str  # the reason why other parents are missing


COLUMNS = ("evaluation", "parents", "cell", "fitness", "generation", "operator")
NOT_RECORDED = "replaced since and not recorded"


def empty_ancestors() -> Ancestors:
    """No ancestors, for an archive of an unknown run."""
    none = np.zeros(0, np.int64)
    return Ancestors(none, none.reshape(0, 2), none, np.zeros(0), none, np.zeros(0, "U1"), NOT_RECORDED)


def find_ancestors(run: RunFolder, archive: SavedArchive, snapshots: Sequence[SavedArchive]) -> Ancestors:
    """The ancestors in the run's log or, if it cannot be read, those in its snapshots."""
    try:
        log = run.read_lineage()
    except ElitesError as error:
        return replace(_trace_in_snapshots(archive, snapshots), missing_reason=f"replaced since; {error}")
    return _trace_in_snapshots(archive, snapshots) if log is None else _trace_in_log(archive, log)


def _trace_in_log(archive: SavedArchive, log: Lineage) -> Ancestors:
    """The first parents of every elite, their first parents and so on, then the second parents of all these.

    All lines advance by one parent at a time, those of the best elites first, until there are enough.
    """
    parents = archive.parents.reshape(len(archive), -1)
    taken = np.zeros(len(log), bool)
    elites = log.find_rows(archive.evaluation)
    taken[elites[elites >= 0]] = True
    chosen = np.zeros(0, np.int64)

    def add(evaluations: np.ndarray) -> tuple[np.ndarray, bool]:
        """Adds ancestors. Returns the rows of the new ones, and whether some had no room."""
        nonlocal chosen
        rows = log.find_rows(evaluations)
        rows = rows[rows >= 0]
        rows = rows[~taken[rows]]
        rows = rows[np.sort(np.unique(rows, return_index=True)[1])]  # each once, in the same order
        new = rows[: MAX_ANCESTORS - len(chosen)]
        taken[new] = True
        chosen = np.concatenate([chosen, new])
        return new, len(new) < len(rows)

    new, is_cut = add(parents[:, 0])
    while len(new) and not is_cut:
        new, is_cut = add(log.parents[new, 0])
    add(np.concatenate([parents[:, 1:].ravel(), log.parents[chosen, 1]]))
    ancestors = log.select_rows(np.sort(chosen))
    too_large = "left out of this page, which would be too large; elites.load_lineage has all"
    return Ancestors(
        **{name: getattr(ancestors, name) for name in COLUMNS},
        missing_reason=too_large if is_cut else "which did not enter the archive",
    )


def _trace_in_snapshots(archive: SavedArchive, snapshots: Sequence[SavedArchive]) -> Ancestors:
    known: dict[int, tuple[SavedArchive, int]] = {}
    for snapshot in snapshots:
        known |= {int(evaluation): (snapshot, row) for row, evaluation in enumerate(snapshot.evaluation)}
    present = set(archive.evaluation.tolist())
    wanted = [int(parent) for parent in archive.parents.ravel() if parent >= 0]
    chosen: set[int] = set()
    while wanted and len(chosen) < MAX_ANCESTORS:
        evaluation = wanted.pop()
        if evaluation in present or evaluation in chosen or evaluation not in known:
            continue
        chosen.add(evaluation)
        snapshot, row = known[evaluation]
        wanted += [int(parent) for parent in np.ravel(snapshot.parents[row]) if parent >= 0]
    if not chosen:
        return empty_ancestors()
    rows = [known[evaluation] for evaluation in sorted(chosen)]
    columns = {name: np.array([getattr(snapshot, name)[row] for snapshot, row in rows]) for name in COLUMNS}
    return Ancestors(**columns, missing_reason=NOT_RECORDED)
