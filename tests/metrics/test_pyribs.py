import numpy as np
import pytest
from ribs.archives import CVTArchive, GridArchive

from elites import ElitesError
from elites.archives.cells import make_grid
from elites.metrics.corrected import average_replications
from elites.metrics.metric import compute_archive_metrics
from elites.metrics.pyribs import from_pyribs

RANGES = [(0, 1), (-1, 3)]


def archives():
    """Both kinds, filled at random, each with what our metrics need to know about its cells."""
    rng = np.random.default_rng(0)
    regular = make_grid((5, 4), RANGES)
    made = [
        (
            GridArchive(solution_dim=3, dims=[5, 4], ranges=RANGES, qd_score_offset=-1),
            {"centroids": regular.centroids, "grid": regular.grid, "bounds": RANGES},
        )
    ]
    centroids = rng.random((20, 2)) * [1, 4] - [0, 1]
    made.append(
        (
            CVTArchive(solution_dim=3, centroids=centroids, ranges=RANGES, qd_score_offset=-1),
            {"centroids": centroids},
        )
    )
    for archive, _ in made:
        archive.add(rng.random((40, 3)), rng.normal(size=40), rng.random((40, 2)) * [1, 4] - [0, 1])
    return made


@pytest.mark.parametrize(("archive", "where"), archives(), ids=["grid", "cvt"])
def test_an_archive_of_pyribs_has_the_same_metrics(archive, where, tmp_path):
    np.savez(tmp_path / "ribs.npz", **archive.data())
    sources = archive.data(), archive.data(return_type="pandas"), tmp_path / "ribs.npz"
    for fields in zip(*map(from_pyribs, sources), strict=True):
        np.testing.assert_array_equal(fields[0], fields[1])
        np.testing.assert_array_equal(fields[0], fields[2])
    elites = from_pyribs(sources[1])
    metrics = compute_archive_metrics(np.maximum(elites.fitness, -1), archive.cells, -1)
    below = np.minimum(elites.fitness + 1, 0).sum()  # pyribs counts these, we do not
    assert metrics.qd_score == pytest.approx(archive.stats.qd_score - below)
    assert metrics.coverage == pytest.approx(archive.stats.coverage)
    assert compute_archive_metrics(elites.fitness, archive.cells, -1).max_fitness == archive.stats.obj_max


@pytest.mark.parametrize(("archive", "where"), archives(), ids=["grid", "cvt"])
def test_a_correction_equals_inserting_the_means_with_pyribs(archive, where):
    rng, elites = np.random.default_rng(1), from_pyribs(archive.data())
    samples = elites.fitness[:, None] + rng.normal(size=(len(elites.cell), 7))
    places = elites.descriptor[:, None] + rng.normal(0, 0.1, (len(elites.cell), 7, 2))
    correction = average_replications(
        elites.fitness, elites.descriptor, elites.cell, samples, places, **where, qd_offset=-1
    )
    np.testing.assert_array_equal(correction.cell, archive.index_of(places.mean(1)))
    archive.clear()
    archive.add(elites.parameters, samples.mean(1), places.mean(1))
    assert correction.metrics.coverage == pytest.approx(archive.stats.coverage)
    assert correction.metrics.max_fitness == pytest.approx(archive.stats.obj_max)


def test_invalid_pyribs_archives_are_reported(tmp_path):
    with pytest.raises(ElitesError, match="not an archive of pyribs: it has no solution, only luck"):
        from_pyribs({"luck": np.zeros(3)})
    with pytest.raises(ElitesError, match="does not exist"):
        from_pyribs(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ElitesError, match="is not an archive of pyribs, or is damaged"):
        from_pyribs(tmp_path / "text.npz")
