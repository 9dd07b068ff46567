"""The controller in Numba, for compiled episodes.

A file whose compiled functions call `perceptron` must name this file to its `Compiler`.
"""

from __future__ import annotations

from functools import partial
from math import tanh

import numpy as np

from elites.machine_code import Compiler

compiled = Compiler(__file__)


@partial(compiled, fastmath={"contract"})
def perceptron(
    parameters: np.ndarray, sizes: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, action: np.ndarray
) -> None:
    """Fills in the action: rectified hidden units, tanh at the end.

    `inputs` begins with the observation; it and `outputs` are buffers as long as the widest layer.
    """
    start = 0
    layers = len(sizes) - 1
    for layer in range(layers):
        width_in, width_out = sizes[layer], sizes[layer + 1]
        biases = start + width_in * width_out
        for j in range(width_out):
            outputs[j] = parameters[biases + j]
        for i in range(width_in):  # over inputs on the outside: vectorised without reordering a sum
            row = parameters[start + i * width_out : start + (i + 1) * width_out]
            value = inputs[i]
            for j in range(width_out):
                outputs[j] += value * row[j]
        if layer < layers - 1:
            for j in range(width_out):
                outputs[j] = max(outputs[j], np.float32(0))
        inputs, outputs = outputs, inputs
        start = biases + width_out
    for j in range(len(action)):
        action[j] = tanh(inputs[j])
