"""The interfaces of tasks: simulated on the host, or pure JAX."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol, Self

from elites.errors import require
from elites.imports import select_pickles
from elites.options import (
    Cells,
    Count,
    EpisodeLength,
    Finite,
    Range,
    check_fields,
    check_parameters,
    convert_value,
)
from elites.policies.layout import HIDDEN

if TYPE_CHECKING:
    import jax
    import numpy as np

    from elites.tasks.episode import EpisodeResult, Transitions

MAX_DIMENSIONS = 20  # of a descriptor: cells in more of them take too long to compute
GRIDS = {1: (1000,), 2: (32, 32), 3: (10, 10, 10), 4: (6, 6, 6, 6), 5: (4,) * 5, 6: (3,) * 6}
CONTACT_PHRASE = "contact of {}"  # label of a dimension that is the contact of a foot with the floor
MAX_DEFAULT_CELLS = 1024  # default of a CVT in more than four dimensions


def default_grid(dimensions: int) -> tuple[int, ...]:
    """The default grid of a task, by the number of dimensions of its descriptor."""
    return GRIDS.get(dimensions, (2,) * dimensions)


def default_cells(grid: tuple[int, ...]) -> int:
    """The default number of cells of a CVT archive, by the default grid."""
    return min(math.prod(grid), MAX_DEFAULT_CELLS) if len(grid) > 4 else math.prod(grid)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The facts of a task: its sizes, its descriptor, its default archive and its QD-score offset."""

    fixed: ClassVar[tuple[str, ...]] = (  # fields that are not parameters
        *("name", "robot", "feet", "observation_size", "action_size"),
        *("descriptor_names", "descriptor_bounds"),
    )
    descriptor_phrase: ClassVar[str] = "{}"  # label of a dimension on figures, with its name
    step_descriptor_dtype: ClassVar[str] = "uint8"  # in Transitions: a foot touches the floor, or does not
    measures_offset: ClassVar[bool] = False  # whether a run measures a qd_offset that is NaN
    function_fields: ClassVar[tuple[str, ...]] = ()  # fields that may be paths of functions
    genomes: ClassVar[str] = "controllers"  # what is evaluated, in messages

    name: str
    observation_size: Annotated[int, Range(0, 1_000_000)]
    action_size: Annotated[int, Range(0, 100_000)]
    descriptor_names: Annotated[tuple[str, ...], Range(1, MAX_DIMENSIONS)]
    descriptor_bounds: tuple[tuple[Finite, Finite], ...]
    cells: Cells  # of the CVT archive
    grid: tuple[Count, ...]  # cells per descriptor dimension of the grid archive
    qd_offset: float  # subtracted from the fitness in the QD-score: an elite with this fitness adds 0
    episode_length: EpisodeLength = 1000  # steps after which an episode is truncated

    def __post_init__(self) -> None:
        check_fields(self)
        if not (self.measures_offset and math.isnan(self.qd_offset)):
            convert_value(Finite, "qd_offset", self.qd_offset)
        for low, high in self.descriptor_bounds:
            distinct = high - low > max(1e-30, 1e-6 * max(abs(low), abs(high)))  # in float32
            require(distinct, "descriptor_bounds", (low, high), "finite, the lower one first")
        require(
            len(self.grid) == self.descriptor_size,
            "grid",
            self.grid,
            "a whole number for each descriptor dimension",
        )

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """The task with these parameters in place of its own."""
        return dataclasses.replace(self, **check_parameters(type(self), parameters, self.name, self.fixed))

    @property
    def descriptor_size(self) -> int:
        return len(self.descriptor_names)

    @property
    def describes_steps(self) -> bool:
        """Whether each step has a descriptor, as QD-PG needs."""
        return True

    @property
    def step_descriptor_size(self) -> int:
        """The length of a step's descriptor."""
        return self.descriptor_size if self.describes_steps else 0

    @property
    def is_jax(self) -> bool:
        """Whether its episodes can be part of a program of JAX."""
        return False

    def unavailable_reason(self) -> str:
        """The reason why the task cannot run here, in a line; empty if it can."""
        return ""

    def controller_sizes(self, hidden: tuple[int, ...] = HIDDEN) -> tuple[int, ...]:
        """Layer sizes of a controller for this task, observation and action included."""
        return (self.observation_size, *hidden, self.action_size)

    def pickled_functions(self) -> dict[str, str]:
        """Its functions that no other process can import, by their paths: see `elites.imports`."""
        return select_pickles(getattr(self, name) for name in self.function_fields)

    def functions_in_memory(self) -> list[str]:
        """The paths or names of its functions that no other process can import."""
        return list(self.pickled_functions())


class Stepper(Protocol):
    """Steps through episodes of one task."""

    truncated: bool  # whether the simulator itself cut the episode off in the last `advance`

    def begin(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed. Returns the observation."""

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """One step. Returns (observation, reward, whether the task ended the episode)."""

    def close(self) -> None:
        """Frees the resources of the simulator."""


class Simulator(Stepper, Protocol):
    """Runs whole episodes of one task, one at a time, or steps through them."""

    def run(
        self,
        parameters: np.ndarray,
        sizes: np.ndarray,
        seed: int,
        stop: np.ndarray,
        transitions: Transitions[np.ndarray] | None,
        action_noise: float = 0.0,
    ) -> EpisodeResult:
        """Runs one episode of the controller `parameters`, flat as in `elites.policies.layout`.

        Any thread can set `stop[0]` to end the episode at its next step; a worker process that has not read
        it for `HostTask.step_seconds` is considered hung. `transitions`, views of the rows of one episode,
        are filled in. `action_noise` is as in `Evaluator.evaluate`.
        """


class HostTask(Task, ABC):
    """A task that is simulated outside JAX."""

    @abstractmethod
    def make_simulator(self) -> Simulator:
        """A simulator of this task, for one thread at a time."""

    @property
    def step_seconds(self) -> float:
        """Longest time of a step, after which a worker process is considered hung."""
        return 60.0

    def make_stepper(self) -> Stepper:
        """A simulator to step through episodes from this process. It may run in another one."""
        return self.make_simulator()


class CompiledTask(HostTask):
    """A task whose episodes run in compiled code, one simulator per thread."""


class StepResult(NamedTuple):
    """The result of one step of a device task."""

    state: Any
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array  # whether the task ended the episode
    descriptor: jax.Array  # [step_descriptor_size] of the step, numbers or bool


class DeviceTask(Task, ABC):
    """A task in pure JAX. Its episodes run as native code, in a JAX program, or with a CUDA kernel.

    An episode's descriptor is the mean of its steps' descriptors, unless `episode_descriptor` is overridden.
    An episode with a descriptor that is not finite is invalid.
    """

    step_descriptor_dtype: ClassVar[str] = "float32"

    @property
    def is_jax(self) -> bool:
        """See `Task.is_jax`."""
        return True

    @abstractmethod
    def reset(self, seed: jax.Array) -> tuple[Any, jax.Array]:
        """The beginning of the episode with this seed: (state, observation)."""

    @abstractmethod
    def step(self, state: Any, action: jax.Array) -> StepResult:
        """One step."""

    @property
    def code_version(self) -> str | None:
        """A string that two tasks share only if `reset` and `step` are the same functions, in any process.

        With it, machine code is found in the cache without tracing. With None, the default, tracing is needed
        to find it.
        """
        return None

    def episode_descriptor(self, mean: jax.Array, state: Any) -> jax.Array:
        """The descriptor of an episode, `[descriptor_size]`.

        `mean` is the mean of its steps' descriptors, `[step_descriptor_size]`; `state` is the state after its
        last step, which is kept only for tasks that override this method.
        """
        return mean

    @property
    def describes_episodes(self) -> bool:
        """Whether the descriptor is more than the mean of the steps' descriptors."""
        return type(self).episode_descriptor is not DeviceTask.episode_descriptor

    @property
    def describes_steps(self) -> bool:
        """Whether a step has a descriptor of the same kind as an episode."""
        return not self.describes_episodes

    @property
    def step_descriptor_size(self) -> int:
        """The length of a step's descriptor; any, even 0, for tasks that describe whole episodes."""
        return self.descriptor_size
