"""The correction of an archive."""

from __future__ import annotations

from elites.errors import ElitesError
from elites.results.archive import SavedArchive
from elites.results.corrected import CorrectedArchive
from elites.results.folder import RunFolder


def find_correction(run: RunFolder, archive: SavedArchive) -> tuple[CorrectedArchive | None, str]:
    """The corrected archive, or the reason why none can be shown; no reason if the run was not corrected."""
    if not run.is_corrected:
        return None, ""
    try:
        corrected = run.read_corrected()
    except ElitesError as error:
        return None, f"{error}; `elites correct {run}` makes it again"
    if corrected.is_correction_of(archive):
        return corrected, ""
    evaluations = corrected.about["evaluations"]
    return None, f"only the archive after {evaluations:,} evaluations; `elites correct {run}` corrects this"
