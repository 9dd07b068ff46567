# `make run` and `make test` are all a newcomer needs; both set everything up first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: setup run test test-slow check benchmark lock clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"elites needs Python 3.11, this is {sys.version}")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,brax,cluster]'
	@touch $@

run: setup
	$(BIN)/elites run pga-map-elites qd-hopper --evaluations 5000 --out runs/first-$(shell date +%Y%m%d-%H%M%S)

# Tests compile much and compute little: XLA need not optimise for them.
test: export XLA_FLAGS := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
test: setup
	$(BIN)/python -m pytest

test-slow: setup
	$(BIN)/python -m pytest -m slow

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

benchmark: setup
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/generation.py
	$(BIN)/python benchmarks/td3.py
	$(BIN)/python benchmarks/correct.py
	$(BIN)/python benchmarks/gymnasium.py
	$(BIN)/python benchmarks/report.py

# Newest versions of everything, tried in an environment of their own.
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,brax,cluster]'
	echo '# Versions that are known to work together; made by `make lock`.' > constraints.txt
	.venv-lock/bin/python -m pip freeze --disable-pip-version-check --exclude-editable >> constraints.txt
	rm -rf .venv-lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
