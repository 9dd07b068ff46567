"""A controller leaves the package: each way out gives the same actions, to float32 rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites import Controller, ElitesError
from elites.policies import controller as module
from tests.policies.test_policies import SIZES, TOLERANCE, draw, reference_action


def in_jax(controller, folder):
    return controller


def in_numpy(controller, folder):
    return controller.to_numpy()


def in_torch(controller, folder):
    torch = pytest.importorskip("torch")
    made = controller.to_torch()
    return lambda observations: made(torch.from_numpy(observations)).detach().numpy()


def in_onnx(controller, folder):
    from onnx.reference import ReferenceEvaluator

    runtime = ReferenceEvaluator(str(controller.to_onnx(folder / "controller.onnx")))
    return lambda observations: runtime.run(["action"], {"observation": observations})[0]


every_way = pytest.mark.parametrize("way", [in_jax, in_numpy, in_torch, in_onnx])


@every_way
@given(sizes=st.sampled_from(SIZES), seed=st.integers(0, 100))
def test_actions_are_those_of_the_layout(way, sizes, seed, tmp_path_factory):
    parameters, _ = draw(sizes, seed)
    observations = np.random.default_rng(seed).normal(size=(3, sizes[0])).astype(np.float32)
    act = way(Controller(sizes, parameters), tmp_path_factory.getbasetemp())
    actions = act(observations)
    assert actions.dtype == np.float32
    expected = [reference_action(sizes, parameters, observation) for observation in observations]
    np.testing.assert_allclose(actions, expected, atol=TOLERANCE)


@pytest.mark.parametrize("way", [in_jax, in_numpy])
def test_observations_have_any_leading_axes_and_one_size(way, tmp_path):
    parameters, observation = draw((5, 8, 2))
    act = way(Controller((5, 8, 2), parameters), tmp_path)
    many = act(np.tile(observation, (3, 4, 1)))
    assert many.shape == (3, 4, 2)
    np.testing.assert_allclose(many[1, 2], act(observation.tolist()), atol=TOLERANCE)
    with pytest.raises(ElitesError, match=r"the shape of observations is \[3, 4\]; it must be \[…, 5\]"):
        act(np.zeros((3, 4)))


def test_an_exported_controller_does_not_change_with_the_archive():
    parameters, observation = draw((5, 8, 2))
    exported = Controller((5, 8, 2), parameters).to_numpy()
    before = exported(observation)
    parameters[:] = 0
    np.testing.assert_array_equal(exported(observation), before)


@pytest.mark.parametrize(
    ("method", "message"),
    [("to_torch", "pip install torch"), ("to_onnx", r"pip install 'elites\[onnx\]'")],
)
def test_a_missing_package_gets_one_line(method, message, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    controller = Controller((1, 1), np.zeros(2, np.float32))
    with pytest.raises(ElitesError, match=message):
        getattr(controller, method)(*([tmp_path / "x.onnx"] if method == "to_onnx" else []))


def test_a_file_that_cannot_be_written_gets_one_line(tmp_path):
    with pytest.raises(ElitesError, match=r"cannot write .*No such file or directory"):
        Controller((1, 1), np.zeros(2, np.float32)).to_onnx(tmp_path / "nowhere" / "x.onnx")
