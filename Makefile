# `make run` and `make test` are all a newcomer needs; both set everything up first.
# PYTHON=python3.12 selects a Python; the default is that of .venv, or the newest.
PYTHON ?=
BIN := .venv/bin
INSTALLED := .venv/.installed$(subst /,-,$(PYTHON))
TESTS ?=
CASES ?= 1000
KILLS ?= 300
SEED ?=
TSC := npm_config_fetch_retries=0 npx --yes --package=typescript@7.0.2 tsc

.PHONY: setup run test test-slow test-learning fuzz torture check check-page docs benchmark try-benchmark lock clean

setup: $(INSTALLED)
	@$(BIN)/elites install-bullet || true # says what cannot run without it

# Python compiles what is imported, a small part of what is installed: half of the time is saved.
$(INSTALLED): pyproject.toml constraints.txt
	@if [ -n "$(PYTHON)" ] || [ ! -x $(BIN)/python ]; then \
	  python=$$(scripts/choose-python $(PYTHON)) && echo "setting up with $$($$python --version), $$python" && \
	  $$python -m venv --clear .venv; fi
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs,brax,cluster,mujoco]'
	@touch $@

run: setup
	$(BIN)/elites run pga-map-elites qd-walker --evaluations 5000 --out runs/first-$(shell date +%Y%m%d-%H%M%S)

# Tests compile much and compute little, so XLA does not optimise them. Its older emitters compile three times faster.
test test-slow try-benchmark: export XLA_FLAGS := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
  --xla_cpu_parallel_codegen_split_count=1 --xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters \
  --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE
# Tests start many processes, which take longer if each compiles all bytecode again: it is kept, outside of the source.
test test-slow test-learning: export PYTHONDONTWRITEBYTECODE :=
ifndef PYTHONPYCACHEPREFIX
test test-slow test-learning: export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode
endif
test: setup
	$(BIN)/python -m pytest $(TESTS)

test-slow: setup
	$(BIN)/python -m pytest -m slow --dist worksteal $(TESTS)

# Learning needs much computing time, so XLA optimises these tests.
test-learning: setup
	$(BIN)/python -m pytest -m learning -n 0 tests/test_learning.py $(TESTS)

# SEED=… repeats a run; without it, the seed is random.
fuzz: setup
	$(BIN)/python -m tests.fuzz $(CASES) $(SEED)

torture: setup
	$(BIN)/python -m tests.torture $(KILLS) $(SEED)

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The types in the explorer's scripts. Node.js and TypeScript are needed for nothing else.
check-page:
	@if $(TSC) --version > /dev/null 2>&1; then $(TSC) --project tests/explorer/tsconfig.json; \
	  else echo "there is no TypeScript: the types of the explorer's scripts were not checked"; fi

# Material's warning of MkDocs 2 is not news: pyproject.toml has versions that work together.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

benchmark: setup
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/generation.py
	$(BIN)/python benchmarks/precision.py
	$(BIN)/python benchmarks/td3.py
	$(BIN)/python benchmarks/native.py
	$(BIN)/python benchmarks/archive.py
	$(BIN)/python benchmarks/correct.py
	$(BIN)/python benchmarks/environments.py
	$(BIN)/python benchmarks/seeds.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/explorer.py

# Does BENCHMARK=benchmarks/td3.py still run? XLA optimises nothing: the figures mean nothing.
try-benchmark:
	$(BIN)/python $(BENCHMARK) --quick

# Newest versions of everything, for every supported Python and platform at once.
lock:
	rm -rf .venv-lock && $$(scripts/choose-python $(PYTHON)) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	echo '# Versions that are known to work together; made by `make lock`.' > constraints.txt
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-header --no-annotate \
	  --extra dev --extra docs --extra brax --extra cluster --extra mujoco pyproject.toml >> constraints.txt
	rm -rf .venv-lock

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis
