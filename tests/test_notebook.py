"""A notebook in a real kernel: functions of its cells, and what its cells show."""

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = [
    """
import gymnasium
import numpy as np
import elites

class Point(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.place = np.clip(self.place + 0.5 * action, -1, 1)
        return self.place.astype(np.float32), -float(np.abs(action).sum()), False, False, {}

    def render(self):
        image = np.zeros((48, 64, 3), np.uint8)
        row, column = ((self.place + 1) / 2 * [47, 63]).astype(int)
        image[row, column] = 255
        return image

scale = 2

def describe(episode):
    return (episode.observations[-1] + 1) / scale
""",
    """
task = elites.gymnasium_task(Point, descriptor=describe, episode_length=5, cells=16, qd_offset=-10.0)
small = {"initial": 20, "batch": 20, "hidden": (4,)}
config = elites.RunConfig(algorithm="map-elites", task=task, evaluations=40, hyper_parameters=small)
elites.run(config, "run", execution=elites.Execution(threads=1))
""",
    "archive = elites.load_archive('run'); archive",
    "archive.to_dataframe().head(2)",
    "archive.plot();",
    "elites.replay('run', out='clip.gif', size=(64, 48), steps=3)",
    "archive[0].policy().to_numpy()(np.zeros(2))",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    return client.execute().cells


def data(cell):
    """What a cell has shown, by type."""
    return {kind: value for output in cell.outputs for kind, value in output.get("data", {}).items()}


def test_functions_of_cells_are_descriptors_and_environments(cells):
    printed = "".join(output.text for output in cells[1].outputs if output.output_type == "stream")
    assert "in-memory:Point-" in printed
    assert "in-memory:describe-" in printed
    assert "finished=True" in data(cells[1])["text/plain"]


def test_cells_show_their_last_value(cells):
    _, _, archive, table, plot, clip, action = map(data, cells)
    assert "elites in 16 cells" in archive["text/plain"]
    assert len(archive["image/png"]) > 5000
    assert "fitness" in table["text/html"]
    assert len(plot["image/png"]) > 5000
    assert 'src="data:image/gif;base64,' in clip["text/html"]
    assert action["text/plain"].startswith("array([")
