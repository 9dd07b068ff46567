"""`elites correct`."""

from __future__ import annotations

from dataclasses import dataclass

from elites.cli.command import Flag, Folder, exit_at_once
from elites.experiments.options import EpisodeOptions
from elites.options import Evaluations, Replications, Seed


@dataclass(frozen=True, kw_only=True)
class Correct(EpisodeOptions):
    """Evaluate every elite of a run again, to see how much of its archive was luck.

    Saves all replications, and the corrected archive of their means, as corrected.npz in the run's folder.
    After an interruption the same command continues.
    """

    folder: Folder
    """Folder of the run."""
    replications: Replications = 50
    """Episodes per elite (N)."""
    snapshot: Evaluations | None = None
    """Snapshot to correct, by its evaluations; saved as corrected-EVALUATIONS.npz. Default: the archive."""
    seed: Seed = 0
    """Seed of the replications; they share no episode with the run."""
    redraw: Flag = False
    """deep-grid: a random member of the cell for each replication, instead of its best."""

    def run(self) -> int:
        from elites.experiments.display import Bar

        with Bar(f"correcting {self.folder}", end_process=exit_at_once) as bar:
            from elites.experiments.correct import correct
            from elites.reports.tables import make_losses_table
            from elites.results.folder import RunFolder

            corrected = correct(
                self.folder,
                replications=self.replications,
                snapshot=self.snapshot,
                seed=self.seed,
                redraw=self.redraw,
                threads=self.threads,
                physics=self.physics,
                on_progress=bar,
                on_stop=bar.show_stop,
                log=bar.log,
            )
        print(make_losses_table(corrected, RunFolder(self.folder).read_record().metrics))
        return 0
