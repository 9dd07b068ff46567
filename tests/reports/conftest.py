import io

import pytest
from PIL import Image


@pytest.fixture
def undrawn(monkeypatch):
    """Figures of a report are made but not drawn, which takes most of its time: for tests of what it says."""
    picture = io.BytesIO()
    Image.new("RGB", (1, 1)).save(picture, "png")

    def save(made, folder):
        (folder / f"{made.name}.png").write_bytes(picture.getvalue())

    monkeypatch.setattr("elites.reports.study.report.save", save)
