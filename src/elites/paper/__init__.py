"""The paper that this package reproduces: its studies, its claims, and the verdicts of runs on them."""
