"""A process that runs commands, one after the other, so that imports and compiled programs are shared.

A request is one line of JSON on standard input: arguments, folder, encoding, environment. The answer is one
line on the standard output: the exit status, or the traceback of an exception that escaped.
"""

import contextlib
import io
import json
import os
import resource
import sys
import tempfile
import traceback
import warnings

RESERVE = 16 * 2**30  # bytes of addresses beyond those in use; the limit on memory itself is the parent's


def limit_addresses():
    """Makes an absurd allocation fail here instead of taking the machine's memory."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + RESERVE, used + RESERVE))


def perform(request):
    """Runs one command with its output in files."""
    from elites.cli import main

    os.chdir(request["folder"])
    with open(request["stdout"], "wb") as out, open(request["stderr"], "wb") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
    before = {name: os.environ.get(name) for name in request["environment"]}
    os.environ.update(request["environment"])
    encoding = request["encoding"]
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding, write_through=True)
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), encoding, "backslashreplace", write_through=True
    )
    answer = {"status": None, "escaped": None}
    try:
        with warnings.catch_warnings():  # shows each warning again
            answer["status"] = main(request["arguments"]) or 0
    except SystemExit as stopped:
        answer["status"] = stopped.code if isinstance(stopped.code, int) else 0 if stopped.code is None else 1
    except BaseException:
        answer["escaped"] = traceback.format_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    return answer


def serve():
    requests = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    import elites.experiments.run
    import elites.reports.show  # noqa: F401 # what most commands need

    limit_addresses()
    answers.write(json.dumps({"ready": tempfile.gettempdir()}) + "\n")
    for line in requests:
        answers.write(json.dumps(perform(json.loads(line))) + "\n")


if __name__ == "__main__":
    serve()
