"""QD-scores above the lowest fitness of all final archives of a task, the corrected ones among them.

The paper's authors measured QD-scores in this way. The lowest fitness depends on which runs are compared:
these scores only show whether a result depends on the offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elites.errors import ElitesError
from elites.metrics.corrected import loss
from elites.metrics.metric import BY_NAME
from elites.results.archive import load_fitness
from elites.results.corrected import load_corrected_fitness
from elites.results.folder import RunFolder

if TYPE_CHECKING:
    from elites.studies.results.study_results import Curves

QD_SCORE = BY_NAME["qd_score"]
POOLED = (QD_SCORE.name, QD_SCORE.corrected.name, QD_SCORE.loss.name)  # quantities that depend on the offset


def compute_pooled_scores(
    runs: Iterable[tuple[Curves, Mapping[str, float]]],
) -> dict[Path, dict[str, float]]:
    """The quantities `POOLED` of each run, given with its correction.

    If the elites of a run are not known at the compared evaluations, no run of its task is included: the
    lowest fitness is then not known either.
    """
    tasks: dict[str, dict[Path, list[np.ndarray] | None]] = {}
    for curves, correction in runs:
        known = tasks.setdefault(curves.run.task, {})
        if all(fitness is not None for fitness in known.values()):  # else it is not known anyway
            place = curves.end.evaluations
            known[curves.run.folder.path] = _read_fitness(curves.run.folder, place, bool(correction))
    scores: dict[Path, dict[str, float]] = {}
    for known in tasks.values():
        archives = [fitness for pair in known.values() for fitness in pair or ()]
        if all(pair is not None for pair in known.values()):
            lowest = min((float(fitness.min()) for fitness in archives if len(fitness)), default=0.0)
            scores |= {path: _scores(pair or [], lowest) for path, pair in known.items()}
    return scores


def _scores(archives: list[np.ndarray], offset: float) -> dict[str, float]:
    """The QD-score of an archive and, if it was corrected, those of the correction."""
    before, *after = (math.fsum(fitness - offset) for fitness in archives)
    if not after:
        return {QD_SCORE.name: before}
    return dict(zip(POOLED, (before, after[0], loss(before, after[0])), strict=True))


def _read_fitness(folder: RunFolder, evaluations: int, corrected: bool) -> list[np.ndarray] | None:
    """The fitness of the elites after these evaluations, and of the corrected ones; None if not known."""
    try:
        loaded = [load_fitness(folder.archive)]
        if corrected:
            loaded.append(load_corrected_fitness(folder.corrected()))
        archives = [np.asarray(fitness, np.float64).ravel() for _, fitness in loaded]
    except (ElitesError, IndexError, ValueError, TypeError):
        return None
    whole = all(np.isfinite(fitness).all() for fitness in archives)
    return archives if whole and all(at == evaluations for at, _ in loaded) else None
