"""A task that takes its time outside the interpreter, where no signal is handled, as programs of JAX do."""

import ctypes
import os
import signal

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
