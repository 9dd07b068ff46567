import jax
import numpy as np

from elites import make_task
from elites.algorithms.td3 import TD3, TD3Config
from elites.evaluation.environment import StatelessSimulator
from elites.tasks.episode import Ending
from elites.tasks.qdgym.environment import QDGymEnv
from tests.algorithms.test_algorithms import evolve, small


class Target:
    """Episodes of five steps that reward the action 0.5 x, where x is shown: the best actor is known."""

    truncated = False

    def begin(self, seed):
        self.random = np.random.default_rng(seed)
        self.steps = 0
        return self._observe()

    def _observe(self):
        self.x = self.random.uniform(-1, 1)
        return np.array([self.x] * 15, np.float32)

    def advance(self, action):
        reward = 1 - float((action[0] - 0.5 * self.x) ** 2)
        self.steps += 1
        return self._observe(), reward, self.steps == 5


def test_the_actor_finds_a_known_optimum():
    config = TD3Config(
        batch=10, evaluate_every=100, random_steps=500, critic_hidden=(32, 32), hidden=(16,),
        training_batch=64, buffer_size=5000, greedy_learning_rate=1e-3, critic_learning_rate=3e-3,
        discount=0.5,
    )  # fmt: skip
    algorithm = TD3(make_task("qd-hopper"), config)
    algorithm.environment.simulator = StatelessSimulator(Target)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    ask = jax.jit(algorithm.ask, static_argnums=2)
    for turn, round in enumerate((algorithm.opening[0][0], *algorithm.generation, *algorithm.generation)):
        state, batch = ask(state, jax.random.key(turn), round)
    x = np.linspace(-0.9, 0.9, 50, dtype=np.float32)
    actions = algorithm.policy.apply(batch.parameters[-1], np.repeat(x[:, None], 15, axis=1))[:, 0]
    assert np.abs(actions - 0.5 * x).mean() < 0.12
    assert state.progress.training_steps == 3 * 1000
    assert state.td3.steps == 3 * 1000 - 500


def test_copies_are_taken_every_few_steps():
    algorithm = small("td3", batch=6, evaluate_every=3, random_steps=10)
    history = list(evolve(algorithm, generations=3))
    for generation, (state, _, batch, _, _) in enumerate(history, start=1):
        assert state.progress.training_steps == 18 * generation
        assert state.td3.steps == 18 * generation - 10
        assert state.progress.evaluations == 6 * generation
        np.testing.assert_array_equal(batch.parameters[-1], algorithm.policy.flatten(state.td3.actor))
    assert state.buffer.size == 18 * 3
    first = np.asarray(history[0][2].parameters)  # copies after steps 3, 6, …: untrained until after step 10
    np.testing.assert_array_equal(first[:3], np.broadcast_to(first[0], first[:3].shape))
    assert (first[4] != first[0]).any()


def test_repeated_transitions_fill_the_buffer_and_start_training_earlier():
    """The hopper has 15 observations: 4 different transitions in 60 places, training after 30 / 15 steps."""
    algorithm = small(
        "td3", batch=5, evaluate_every=2, random_steps=30, repeat_transitions=True, buffer_size=60
    )
    history = list(evolve(algorithm, generations=4))
    assert [state.td3.steps for state, *_ in history] == [8, 18, 28, 38]
    state = history[-1][0]
    assert state.buffer.rows.shape[0] == state.buffer.size == 4
    assert len(algorithm.opening) == 3
    assert [algorithm.phases[round.name] for _, round, *_ in history] == [(10, 2), (10, 0), (10, 0), (0, 0)]


def test_random_steps_act_at_random():
    actions = {}
    for kind, steps in (("random", 60), ("actor", 0)):
        algorithm = small("td3", batch=15, evaluate_every=2, random_steps=steps, exploration_noise=0.0)
        *_, (state, *_) = evolve(algorithm, generations=2)
        actions[kind] = np.asarray(state.buffer.rows)[: int(state.buffer.size), 15:18]
    assert len(actions["random"]) == 60
    assert (np.abs(actions["random"]) > 0.8).mean() > 0.1  # uniform from -1 to 1
    assert (np.abs(actions["actor"]) > 0.8).mean() < 0.02


def test_the_archive_does_not_affect_training():
    """Whatever the evaluations say, training is the same."""
    first, second = (
        list(evolve(small("td3"), generations=3, broken=broken))[-1][0] for broken in ((), tuple(range(20)))
    )
    jax.tree.map(np.testing.assert_array_equal, first.td3, second.td3)
    assert (np.asarray(second.archive.elites.fitness) == -np.inf).all()


def test_an_environment_in_another_state_is_replayed():
    task = make_task("qd-hopper")
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    environment = QDGymEnv(task)
    environment.reset(seed=5)
    expected = [environment.step(action) for action in actions]
    straight, jumping = StatelessSimulator(task.make_simulator), StatelessSimulator(task.make_simulator)
    straight.begin(5)
    for count, (observation, reward, terminated, _, _) in enumerate(expected):
        result = straight.step(5, count, actions, actions[count])
        np.testing.assert_array_equal(result[0], observation)
        assert result[1] == np.float32(reward)
        assert result[2] == terminated
    for count in (7, 2, 2, 13):  # as after a resume, or beside another replication
        jumping.begin(99)
        result = jumping.step(5, count, actions, actions[count])
        np.testing.assert_array_equal(result[0], expected[count][0])
    environment.close()


def test_the_training_environment_goes_through_whole_episodes():
    algorithm = small("td3", random_steps=40, batch=4)
    (state, *_), *_ = evolve(algorithm, generations=1)
    rows = np.asarray(state.buffer.rows)[: int(state.buffer.size)]
    terminal, following, observation = rows[:, -1], rows[:, 19:34], rows[:, :15]
    continued = (following[:-1] == observation[1:]).all(1)
    lengths = np.diff(np.flatnonzero(np.concatenate([[True], ~continued, [True]])))
    assert lengths.max() <= algorithm.task.episode_length
    assert (~continued | (terminal[:-1] == 0)).all()  # a new episode begins after every terminal step
    assert Ending.TERMINATED == 0
