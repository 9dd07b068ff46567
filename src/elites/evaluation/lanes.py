"""Whole episodes in machine code, several robots side by side: policy, step, ends and records.

The functions of a task are compiled by `elites.native`; here they are called by their addresses, without the
interpreter's lock. A lane whose episode has ended takes the next one. All code that Numba compiles for it is
in this file.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numba
import numpy as np

from elites.machine_code import Compiler

TERMINATED, TRUNCATED, INVALID = 0, 1, 2  # elites.tasks.episode.Ending

compiled = Compiler(__file__)


class Code(NamedTuple):
    """Addresses of the functions of a task and its controllers."""

    reset: int
    act: int
    step: int
    perceptron: int


class Layout(NamedTuple):
    """How a controller and a state are stored."""

    sizes: np.ndarray  # of the layers
    padded: np.ndarray
    weights: np.ndarray  # of each layer: where they begin
    biases: np.ndarray
    stored_positions: np.ndarray  # positions of the numbers of a state that steps need


class Block(NamedTuple):
    """The memory of a thread, `[numbers, lanes]` unless it says otherwise."""

    seeds: np.ndarray  # of the next episodes
    initial_states: np.ndarray  # whole states, of the next episodes
    initial_observations: np.ndarray
    state: np.ndarray
    observation: np.ndarray
    outputs: np.ndarray  # of the controllers, before tanh
    noise_inputs: np.ndarray  # seed, step and spread of the noise on actions
    action: np.ndarray
    reward_and_fitness: np.ndarray
    step_descriptor: np.ndarray
    episode_descriptor: np.ndarray  # if the episode ends here
    # Whether the episode ends, whether all numbers were finite, whether the episode's descriptor is finite.
    flags: np.ndarray
    weights: np.ndarray  # [lanes, numbers]
    controllers: np.ndarray  # [lanes], the controller in each row of weights
    # [lanes], whether weights of zero inputs must be read too, because a weight is not finite.
    dense: np.ndarray
    slot: np.ndarray  # [lanes], the row of weights of each lane
    episode: np.ndarray  # [lanes], -1: none
    length: np.ndarray  # [lanes]


class Batch(NamedTuple):
    """The episodes of a call, `[episodes, …]`.

    If nothing is recorded, the arrays of transitions have length 0.
    """

    parameters: np.ndarray  # [controllers, P]
    seeds: np.ndarray
    fitness: np.ndarray
    descriptor: np.ndarray
    lengths: np.ndarray
    endings: np.ndarray
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    step_descriptors: np.ndarray


if numba.config.DISABLE_JIT:  # NUMBA_DISABLE_JIT=1 runs the same code interpreted

    def call(address: int, arguments: tuple[int, ...]) -> None:
        """Calls a function of addresses and whole numbers."""
        words = [ctypes.c_ssize_t] * len(arguments)
        ctypes.CFUNCTYPE(None, *words)(address)(*arguments)

    def fetch_add(counter: np.ndarray, amount: int) -> int:
        """Adds to a counter that threads share. Returns the previous value."""
        before = int(counter[0])
        counter[0] += amount
        return before

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array

    @intrinsic
    def call(typing: Any, address: Any, arguments: Any) -> Any:
        """Calls a function of addresses and whole numbers."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words = [builder.extract_value(values[1], k) for k in range(len(arguments))]
            kind = ir.FunctionType(ir.VoidType(), [word.type for word in words])
            builder.call(builder.inttoptr(values[0], kind.as_pointer()), words)
            return context.get_dummy_value()

        return types.void(types.intp, arguments), generate

    @intrinsic
    def fetch_add(typing: Any, counter: Any, amount: Any) -> Any:
        """Adds to a counter that threads share. Returns the previous value."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, value=values[0])
            return builder.atomic_rmw("add", array.data, values[1], "monotonic")

        return types.int64(counter, types.int64), generate


@compiled
def run(
    code: Code,
    layout: Layout,
    block: Block,
    batch: Batch,
    steps: int,
    total: int,
    threads: int,
    counter: np.ndarray,
    stop: np.ndarray,
) -> None:
    """Runs episodes of the batch until none of the first `total` is left, or `stop[0]` is set."""
    lanes = len(block.episode)
    used = min(lanes, -(-total // threads))
    per_controller = len(batch.seeds) // max(1, len(batch.parameters))
    for lane in range(lanes):
        block.episode[lane] = -1
        block.controllers[lane] = -1
    first = taken = ready = 0  # prepared episodes: index of the first, number started, number prepared
    running, turn, episodes_left = 0, 0, True
    while True:
        if episodes_left and running < used:
            for lane in range(used):
                if block.episode[lane] >= 0:
                    continue
                if taken == ready:
                    ready, taken = min(used, max(1, (total - counter[0]) // (2 * threads))), 0
                    first = fetch_add(counter, ready)
                    ready = min(ready, total - first)
                    if ready <= 0:
                        episodes_left = False
                        break
                    for k in range(lanes):
                        block.seeds[0, k] = batch.seeds[first + min(k, ready - 1)]
                    call(
                        code.reset,
                        (
                            block.seeds.ctypes.data,
                            block.initial_states.ctypes.data,
                            block.initial_observations.ctypes.data,
                            1,
                        ),
                    )
                episode = first + taken
                for k in range(len(layout.stored_positions)):
                    block.state[k, lane] = block.initial_states[layout.stored_positions[k], taken]
                for k in range(len(block.initial_observations)):
                    block.observation[k, lane] = block.initial_observations[k, taken]
                if len(batch.actions) > 0:
                    for k in range(len(block.initial_observations)):
                        batch.observations[episode, 0, k] = block.initial_observations[k, taken]
                block.noise_inputs[0, lane] = batch.seeds[episode]
                block.episode[lane], block.length[lane] = episode, 0
                load_controller(layout, block, batch.parameters, episode // per_controller, lane)
                taken += 1
                running += 1
        if running == 0 or stop[0]:
            return
        turn += 1
        for k in range(used):  # forwards, then backwards: the last weights are still in the cache
            lane = k if turn % 2 else used - 1 - k
            if block.episode[lane] >= 0:
                slot = block.slot[lane]
                call(
                    code.perceptron,
                    (
                        block.weights[slot].ctypes.data,
                        block.observation.ctypes.data,
                        block.outputs.ctypes.data,
                        lane,
                        block.dense[slot],
                    ),
                )
                block.noise_inputs[1, lane] = block.length[lane]
        call(
            code.act, (block.outputs.ctypes.data, block.noise_inputs.ctypes.data, block.action.ctypes.data, 1)
        )
        call(
            code.step,
            (
                block.state.ctypes.data,
                block.action.ctypes.data,
                block.state.ctypes.data,
                block.observation.ctypes.data,
                block.reward_and_fitness.ctypes.data,
                block.step_descriptor.ctypes.data,
                block.episode_descriptor.ctypes.data,
                block.flags.ctypes.data,
                1,
            ),
        )
        for lane in range(used):
            episode = block.episode[lane]
            if episode < 0:
                continue
            if len(batch.actions) > 0:
                record(block, batch, episode, lane)
            block.length[lane] += 1
            if block.flags[0, lane] != 0 or block.length[lane] == steps:
                finish(block, batch, episode, lane)
                block.episode[lane] = -1
                running -= 1


@compiled
def load_controller(layout: Layout, block: Block, parameters: np.ndarray, controller: int, lane: int) -> None:
    """Gives a lane the row of weights with its controller, copied into a free row if there is none yet."""
    lanes = len(block.episode)
    free = -1
    for slot in range(lanes):
        if block.controllers[slot] == controller:
            block.slot[lane] = slot
            return
        used = False
        for other in range(lanes):
            if other != lane and block.episode[other] >= 0 and block.slot[other] == slot:
                used = True
        if not used:
            free = slot
    block.slot[lane], block.controllers[free] = free, controller
    block.dense[free] = copy_controller(layout, parameters[controller], block.weights[free])


@compiled
def copy_controller(layout: Layout, parameters: np.ndarray, weights: np.ndarray) -> int:
    """Copies a flat controller as `elites.native.perceptron` reads it.

    Returns whether any number is not finite.
    """
    layers = len(layout.sizes) - 1
    start = 0
    for layer in range(layers):
        inputs, outputs = layout.sizes[layer], layout.sizes[layer + 1]
        across = layout.padded[layer] if layer == layers - 1 else layout.padded[layer + 1]
        at = layout.weights[layer]
        for i in range(inputs):
            row = parameters[start + i * outputs : start + (i + 1) * outputs]
            if layer < layers - 1:
                target = weights[at + i * across : at + i * across + outputs]
                for j in range(outputs):
                    target[j] = row[j]
            else:
                for j in range(outputs):
                    weights[at + j * across + i] = row[j]
        start += inputs * outputs
        for j in range(outputs):
            weights[layout.biases[layer] + j] = parameters[start + j]
        start += outputs
    largest = np.uint32(0)
    bits = parameters.view(np.uint32)
    for k in range(len(bits)):  # without its sign a float's bits grow with it
        largest = max(largest, bits[k] & np.uint32(0x7FFFFFFF))
    return 1 if largest >= np.uint32(0x7F800000) else 0


@compiled
def record(block: Block, batch: Batch, episode: int, lane: int) -> None:
    """Writes a step of an episode into its rows."""
    step = block.length[lane]
    for k in range(len(block.observation)):
        batch.observations[episode, step + 1, k] = block.observation[k, lane]
    for k in range(len(block.action)):
        batch.actions[episode, step, k] = block.action[k, lane]
    for k in range(len(block.step_descriptor)):
        batch.step_descriptors[episode, step, k] = block.step_descriptor[k, lane]
    batch.rewards[episode, step] = block.reward_and_fitness[0, lane]


@compiled
def finish(block: Block, batch: Batch, episode: int, lane: int) -> None:
    """Writes the result of an episode that has ended.

    The ending is written last, because another thread waits for it.
    """
    ending = TERMINATED if block.flags[0, lane] != 0 else TRUNCATED
    if block.flags[1, lane] == 0 or block.flags[2, lane] == 0:
        ending = INVALID
    batch.fitness[episode] = np.float32(np.nan) if ending == INVALID else block.reward_and_fitness[1, lane]
    for k in range(len(block.episode_descriptor)):
        batch.descriptor[episode, k] = (
            np.float32(np.nan) if ending == INVALID else block.episode_descriptor[k, lane]
        )
    batch.lengths[episode] = block.length[lane]
    batch.endings[episode] = ending
