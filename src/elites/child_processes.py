"""Child processes that run the user's code. They end when this process ends, even if it is killed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

PR_SET_PDEATHSIG = 1
IN_CHILD = "ELITES_WORKER"  # variable that is set in the environment of such processes
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
START_SECONDS = 120.0  # for a process to import this package
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from {module} import main; main(*map(int, sys.argv[2:]))"
)


class SupportsClose(Protocol):
    """A socket or a connection."""

    def close(self) -> None: ...


def in_child() -> bool:
    """Whether this process was started by `start_child`."""
    return bool(os.environ.get(IN_CHILD))


def start_child(
    module: str, descriptors: Sequence[int], lifeline: int, *arguments: int
) -> subprocess.Popen[bytes]:
    """Starts `main` of a module, with these descriptors, the arguments of `end_with_parent` and the others.

    `lifeline` is the reading end of a pipe. This process keeps the other end.
    """
    by_main_thread = threading.current_thread() is threading.main_thread()
    numbers = (*descriptors, lifeline, os.getpid(), int(by_main_thread), *arguments)
    # Ctrl-C reaches all processes of a terminal: it is blocked until the child ignores it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                BOOT.format(module=module),
                json.dumps(_search_path()),
                *map(str, numbers),
            ],
            pass_fds=(*descriptors, lifeline),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **dict.fromkeys(ONE_THREAD, "1"), IN_CHILD: "1"},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_child(process: subprocess.Popen[bytes], channel: SupportsClose, lifeline: tuple[int, int]) -> None:
    """Kills a child process, and closes its channel and both ends of its lifeline."""
    channel.close()
    process.kill()
    process.wait()
    for descriptor in lifeline:
        os.close(descriptor)


def _search_path() -> list[str]:
    """The search path of this process, and the current folder."""
    here = os.getcwd()
    path = [entry or here for entry in sys.path]
    return path if here in path else [*path, here]


def end_with_parent(lifeline: int, parent: int, by_main_thread: int) -> None:
    """Makes this process ignore Ctrl-C, and end with its parent, even if the parent is killed.

    On Linux, if the parent's main thread started this process, the kernel kills it when that thread ends,
    even if the interpreter hangs. (Other threads may end before their process.) In all cases, a thread also
    waits for the end of a pipe that only the parent holds open.
    """
    if sys.platform == "linux" and by_main_thread:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="lifeline").start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent has blocked it until now


def describe_exit(code: int) -> str:
    """How a process ended."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"
