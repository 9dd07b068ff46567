"""Tasks that take their time: outside the interpreter, where no signal is handled, or until a file exists."""

import ctypes
import os
import signal
import time
from pathlib import Path

import numpy as np

import elites


@elites.task(parameters=3, descriptor_bounds=[(-1, 1), (-1, 1)], cells=50)
def nap(vectors):
    """A simple function; each batch takes as many seconds as the variable NAP says."""
    vectors = np.asarray(vectors)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # another thread of the process takes it
    ctypes.CDLL(None).poll(None, 0, int(1000 * float(os.environ.get("NAP", 0))))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return 3 - (vectors**2).sum(1), vectors[:, :2].clip(-1, 1)


@elites.task(parameters=3, descriptor_bounds=[(-1, 1), (-1, 1)], cells=50)
def held(vectors):
    """A simple function; batches of 20 wait for the file that the variable HELD_UNTIL names."""
    vectors = np.asarray(vectors)
    limit = time.monotonic() + 120
    while len(vectors) == 20 and not Path(os.environ["HELD_UNTIL"]).exists() and time.monotonic() < limit:
        time.sleep(0.05)
    return 3 - (vectors**2).sum(1), vectors[:, :2].clip(-1, 1)
