"""A worker that is killed while it writes the records of a group."""

import json
import signal
import subprocess
import sys

import pytest

from elites import tasks
from elites.files import is_partial
from elites.paper.presets import make_study
from elites.results.folder import GroupFolder
from elites.studies import remaining
from elites.studies.execution import make_request
from elites.studies.resources import StudyExecution
from elites.studies.worker import execute
from tests.toy import POINT

KILLED = """
import json, os, pathlib, signal, sys
from elites import tasks
from elites.studies.worker import execute
from tests.toy import POINT

tasks.TASKS["point"] = POINT
last, moment, request = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
replace, renames = pathlib.Path.replace, []

def kill(partial, path):
    renames.append(path)
    if len(renames) == last and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(partial, path)
    if len(renames) == last:
        os.kill(os.getpid(), signal.SIGKILL)

pathlib.Path.replace = kill
execute(request, lambda *_, **__: None)
"""
STUDY = """
evaluations = 60
seeds = 2
tasks = ["point"]
algorithms = [{algorithm = "map-elites", hyper_parameters = {initial = 40, batch = 20, hidden = [4]}}]
"""


def quiet(*_, **__):
    pass


def archives(folder):
    return [run.archive.read_bytes() for run in GroupFolder(folder).runs()]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    tasks.TASKS["point"] = POINT
    path = tmp_path_factory.mktemp("study") / "mine.toml"
    path.write_text(STUDY)
    (only,) = make_study(str(path)).jobs()
    yield only
    del tasks.TASKS["point"]


@pytest.fixture(scope="module")
def undisturbed(job, tmp_path_factory):
    folder, messages = tmp_path_factory.mktemp("undisturbed") / "group", []
    assert execute(
        make_request(job, folder, StudyExecution(threads=1)),
        lambda kind, **more: messages.append((kind, more)),
    )
    assert ("phase", {"phase": "compiling"}) in messages
    assert messages[-1][0] == "progress"
    return archives(folder)


@pytest.mark.parametrize("keep", [True, False])
def test_states_are_kept_on_request(keep, job, tmp_path):
    assert execute(make_request(job, tmp_path / "group", StudyExecution(threads=1, keep_state=keep)), quiet)
    assert len(GroupFolder(tmp_path / "group").checkpoints.paths()) == keep


@pytest.mark.parametrize(
    ("rename", "moment", "configs"), [(1, "before", 0), (2, "before", 1), (3, "before", 2), (3, "after", 2)]
)
def test_a_worker_killed_while_it_writes_the_records_of_a_group(
    rename, moment, configs, job, undisturbed, tmp_path
):
    """The records of both replications, then that of the group: the same request again runs to the end."""
    assert job.group
    folder = tmp_path / job.folder
    request = make_request(job, folder, StudyExecution(threads=1))
    command = [sys.executable, "-c", KILLED, str(rename), moment, json.dumps(request)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    group = GroupFolder(folder)
    assert sum(group.run_folder(seed).exists for seed in (0, 1)) == configs
    assert any(is_partial(path) for path in folder.rglob("*")) == (moment == "before")
    assert group.is_incomplete() == (moment == "before")
    assert remaining.select_unfinished(tmp_path, [job]) == [job]
    assert execute(request, quiet)
    assert remaining.select_unfinished(tmp_path, [job]) == []
    assert archives(folder) == undisturbed
    assert not [path for path in folder.rglob("*") if is_partial(path)]
