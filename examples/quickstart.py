"""From a task to the policy of an elite, in Python only.

python examples/quickstart.py [FOLDER] [EVALUATIONS]
"""

import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np

import elites

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart")
budget = int(sys.argv[2]) if len(sys.argv) > 2 else 2000

# Run an algorithm on a task. Its folder holds the metrics, the archive and checkpoints.
config = elites.RunConfig(
    algorithm="pga-map-elites",
    task="qd-hopper",
    evaluations=budget,
    hyper_parameters={"batch": 50, "initial": 100, "critic_steps": 100, "pg_steps": 20},
)
elites.run(config, folder)
print(elites.show(folder))

# Read the archive: elites, best first.
archive = elites.load_archive(folder)
print(f"{len(archive.fitness)} elites; the best has fitness {archive.fitness[0]:.1f}")

# Run the best elite again, on the seed of its episode: the result is the recorded one, bit for bit.
task = elites.make_task("qd-hopper")
with elites.ThreadEvaluator(task) as evaluator:
    again = evaluator.evaluate(archive.parameters[:1], archive.seed[:1])
assert again.fitness[0] == archive.fitness[0]

# Or call its policy yourself, step by step.
act = archive.policy(0)
environment = gymnasium.make("elites/QDHopper-v0")
observation, info = environment.reset(seed=int(archive.seed[0]))
total, steps, over = 0.0, 0, False
while not over:
    observation, reward, terminated, truncated, info = environment.step(act(observation))
    total, steps, over = total + float(reward), steps + 1, terminated or truncated
print(f"{steps} steps, return {total:.1f}, foot on the ground {info['descriptor'][0]:.0%} of the time")
environment.close()

# An algorithm is pure functions over one state: drive it yourself, one exchange at a time.
algorithm = elites.make_algorithm("map-elites", task, initial=20, batch=20)
ask, tell = (jax.jit(function, static_argnums=2) for function in (algorithm.ask, algorithm.tell))
state = jax.jit(algorithm.init)(jax.random.key(0))
with elites.ThreadEvaluator(task) as evaluator:
    for generation, (round,) in enumerate([*algorithm.opening, algorithm.generation, algorithm.generation]):
        key = jax.random.key(generation)
        state, batch = ask(state, key, round)
        evaluation = evaluator.evaluate(batch.parameters, 20 * generation + np.arange(20))
        state, status = tell(state, key, round, batch, evaluation)
        print(f"generation {generation}: {int((status == elites.Status.NEW).sum())} new cells")
