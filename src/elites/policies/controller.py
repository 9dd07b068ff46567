"""One controller, and its export to NumPy, PyTorch and ONNX.

Their actions agree to float32 rounding: each library sums in its own order.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from elites.errors import ElitesError, require
from elites.files import convert_os_errors, write_atomically
from elites.policies.layout import split_layers

ONNX_OPSET, ONNX_FORMAT = 13, 8  # old enough for all recent runtimes


@dataclass(frozen=True, eq=False)
class Controller:
    """A function from observations `[…, observation_size]` to actions within ±1, computed by JAX.

    A task maps the actions to the bounds of its environment.
    """

    sizes: tuple[int, ...]  # of the layers, from the observation to the action
    parameters: np.ndarray  # flat: see `elites.policies.layout`

    def __call__(self, observations: ArrayLike) -> np.ndarray:
        import jax.numpy as jnp

        from elites.policies.jax import Policy

        inputs = jnp.asarray(_check_observations(observations, self.sizes[0]))
        return np.asarray(Policy(self.sizes).apply(jnp.asarray(self.parameters), inputs))

    def __repr__(self) -> str:
        return (
            f"<controller, layers of {', '.join(map(str, self.sizes))}: {len(self.parameters):,} parameters>"
        )

    @property
    def layers(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """(weights [in, out], biases) of each layer."""
        return split_layers(np.array(self.parameters, np.float32), self.sizes)

    def to_numpy(self) -> NumpyController:
        """The same controller, computed by NumPy alone."""
        return NumpyController(self.layers)

    def to_torch(self) -> Any:
        """The same controller as a `torch.nn.Sequential` of float32 layers, on the CPU."""
        _require_package("torch", "to_torch", "torch")
        import torch

        modules: list[Any] = []
        for weights, biases in self.layers:
            linear = torch.nn.Linear(*weights.shape)
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(weights.T.copy()))  # PyTorch's are [out, in]
                linear.bias.copy_(torch.from_numpy(biases))
            modules += [linear, torch.nn.ReLU()]
        return torch.nn.Sequential(*modules[:-1], torch.nn.Tanh())

    def to_onnx(self, path: Path | str) -> Path:
        """Writes the same controller as an ONNX file, from `observation` [n, …] to `action` [n, …]."""
        _require_package("onnx", "to_onnx", "'elites[onnx]'")
        from onnx import TensorProto, checker, helper, numpy_helper

        nodes, tensors, value = [], [], "observation"
        for index, (weights, biases) in enumerate(self.layers, start=1):
            names, total = [f"weights_{index}", f"biases_{index}"], f"sum_{index}"
            tensors += [
                numpy_helper.from_array(array, name)
                for array, name in zip((weights, biases), names, strict=True)
            ]
            nodes.append(helper.make_node("Gemm", [value, *names], [total]))
            last = index == len(self.sizes) - 1
            value = "action" if last else f"hidden_{index}"
            nodes.append(helper.make_node("Tanh" if last else "Relu", [total], [value]))
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
            for name, size in (("observation", self.sizes[0]), ("action", self.sizes[-1]))
        ]
        graph = helper.make_graph(nodes, "controller", ends[:1], ends[1:], tensors)
        model = helper.make_model(
            graph,
            producer_name="elites",
            opset_imports=[helper.make_opsetid("", ONNX_OPSET)],
            ir_version=ONNX_FORMAT,
        )
        checker.check_model(model)
        target, content = Path(path), model.SerializeToString()

        def write(file: IO[bytes]) -> None:
            file.write(content)

        with convert_os_errors(f"cannot write {target}"):
            write_atomically(target, write)
        return target


@dataclass(frozen=True, eq=False)
class NumpyController:
    """A function from observations `[…, observation_size]` to actions within ±1."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]  # (weights [in, out], biases) of each

    def __call__(self, observations: ArrayLike) -> np.ndarray:
        values = _check_observations(observations, len(self.layers[0][0]))
        for weights, biases in self.layers[:-1]:
            values = np.maximum(values @ weights + biases, 0)
        weights, biases = self.layers[-1]
        return np.tanh(values @ weights + biases)  # type: ignore[no-any-return]


def _check_observations(observations: ArrayLike, size: int) -> np.ndarray:
    """The observations as float32; an error if they have another size."""
    inputs = np.asarray(observations, np.float32)
    require(
        inputs.ndim > 0 and inputs.shape[-1] == size,
        "the shape of observations",
        list(inputs.shape),
        f"[…, {size}]",
    )
    return inputs


def _require_package(name: str, method: str, source: str) -> None:
    if find_spec(name) is None:
        raise ElitesError(f"{method} needs {name}, which is not installed: pip install {source}")
