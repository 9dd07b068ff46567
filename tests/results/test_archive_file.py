import numpy as np
import pytest

from elites import ElitesError, load_archive
from elites.results import archive as saved


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 half"])
def test_files_that_are_not_archives_are_refused(content, tmp_path):
    (tmp_path / "archive.npz").write_bytes(content)
    with pytest.raises(ElitesError, match="is not an archive of elites, or is damaged"):
        load_archive(tmp_path)


def test_a_missing_archive_is_reported(tmp_path):
    with pytest.raises(ElitesError, match="does not exist"):
        load_archive(tmp_path)


def test_pickles_are_never_loaded(tmp_path):
    np.savez(tmp_path / "archive.npz", **{name: np.array([{}], object) for name in (*saved.ARRAYS, "about")})
    with pytest.raises(ElitesError, match="damaged"):
        load_archive(tmp_path)
