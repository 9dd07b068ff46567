"""The summary of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elites.errors import ElitesError
from elites.experiments.config import load_config
from elites.files import error_in_one_line
from elites.reports.tables import losses, trust
from elites.results.archive import SavedArchive, load_archive
from elites.results.corrected import CorrectedArchive, corrects, load_corrected
from elites.results.tables import read_table


def show(folder: Path | str) -> str:
    """Draws `archive.png` and `progress.png` in the run's folder. Returns the summary as text.

    Of a corrected archive, draws `corrected.png` and `spread.png` too and tells which elites to trust.
    """
    from elites.reports.figures import draw_archive, draw_corrected, draw_progress, draw_spread

    folder = Path(folder)
    config, _ = load_config(folder)
    if not (folder / "archive.npz").exists():
        raise ElitesError(f"{folder} has no archive yet; it is written with the first checkpoint")
    archive, metrics = load_archive(folder), read_table(folder / "metrics.csv")
    corrections = folder / "corrections.csv"
    corrected, wrong = _corrected(folder, archive)
    title = f"{config.algorithm} on {config.task}, seed {config.seed}"
    with error_in_one_line(f"cannot draw into {folder}"):
        draw_archive(archive, folder / "archive.png")
        along = read_table(corrections) if corrections.exists() else None
        draw_progress(metrics, folder / "progress.png", title, along)
        if corrected is not None:
            draw_corrected(corrected, folder / "corrected.png")
            draw_spread(corrected, folder / "spread.png")

    evaluations, summary = archive.about["evaluations"], archive.metrics
    rows = {
        "evaluations": f"{evaluations:,} of {config.evaluations:,}",
        "QD-score": f"{summary.qd_score:,.0f}",
        "max-fitness": f"{summary.max_fitness:.1f}",
        "coverage": f"{summary.coverage:.1%} ({len(archive.fitness)} of {len(archive.centroids)} cells)",
    }
    if len(archive.fitness):
        names = archive.about["task"]["descriptor_names"]
        where = ", ".join(
            f"{name} {value:.2f}" for name, value in zip(names, archive.descriptor[0], strict=True)
        )
        seeds = np.atleast_1d(archive.seed[0])
        episode = f"episode seed {seeds[0]}" if len(seeds) == 1 else f"the mean of {len(seeds)} episodes"
        rows["best elite"] = (
            f"cell {archive.cell[0]} ({where}), found by {archive.operator[0]} "
            f"in generation {archive.generation[0]}, {episode}"
        )
        found, counts = np.unique(archive.operator, return_counts=True)
        rows["elites found by"] = ", ".join(
            f"{name} {count}" for name, count in zip(found, counts, strict=True)
        )
    rows["archive"] = f"{folder / 'archive.npz'}, drawn in {folder / 'archive.png'}"
    rows["progress"] = f"{folder / 'metrics.csv'}, drawn in {folder / 'progress.png'}"
    if corrected is not None:
        drawn = f"{folder / 'corrected.png'} and {folder / 'spread.png'}"
        rows["corrected"] = f"{folder / 'corrected.npz'}, drawn in {drawn}"
    elif wrong:
        rows["corrected"] = wrong
    summary_rows = [title, *(f"  {name:<16} {text}" for name, text in rows.items())]
    tables = [] if corrected is None else [losses(corrected), trust(corrected)]
    return "\n".join([*summary_rows, *tables])


def _corrected(folder: Path, archive: SavedArchive) -> tuple[CorrectedArchive | None, str]:
    """The corrected archive, or why there is none to show."""
    if not (folder / "corrected.npz").exists():
        return None, ""
    corrected = load_corrected(folder)
    if not corrects(corrected, archive):
        evaluations = corrected.about["evaluations"]
        return (
            None,
            f"only the archive after {evaluations:,} evaluations; `elites correct {folder}` corrects this",
        )
    return corrected, ""
