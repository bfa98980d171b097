# `make smoke` and `make test` work from a fresh clone, as an ordinary user, without a GPU.
SHELL := /bin/bash
.DELETE_ON_ERROR:

BASE_PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar on --constraint constraints.txt
# What a run needs, and what tests, lint and docs need besides.
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
WORKERS ?= 2
# Else every program that a test starts would compile dsforge anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: smoke test test-unit test-counted test-uncounted test-e2e recipes kernels schema docs lint bench clean

smoke: $(READY)
	$(BIN)/dsforge smoke recipes/smoke.yaml

test: recipes test-unit test-e2e

# Under 90 % coverage of floors 0 to 5 without train/, by the floors' own tests, is a failure; REPORT=term shows what
# none reaches. Counting lines takes longer than running them: the other tests do without.
REPORT ?=
COUNTED := $(addprefix tests/unit/,base catalog cost data external foreign layout plan rank recipe records render rules runs)
# A file stays on one worker, with the ranks or plans that its tests share.
UNIT = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not e2e and not cluster" \
  --disable-warnings
test-unit: test-counted test-uncounted

test-counted: $(DEV)
	$(UNIT) --cov --cov-report=$(REPORT) $(COUNTED)

test-uncounted: $(DEV)
	$(UNIT) tests $(addprefix --ignore=,$(COUNTED))

# Two files at a time: a run waits for start-up, timers and shutdown while another computes.
test-e2e: $(DEV)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "e2e or cluster" --disable-warnings --tb=short

# What docs/how-to/dsforge.yml does for the recipes of other repositories; the bundles here are the golden ones.
recipes: $(READY)
	$(BIN)/dsforge validate recipes/*.yaml
	for recipe in recipes/*.yaml; do \
	  name=$$(basename "$$recipe" .yaml); \
	  $(BIN)/dsforge plan "$$recipe" > /dev/null || exit; \
	  $(BIN)/dsforge render --check --out "tests/golden/$$name" "$$recipe" || exit; \
	done

# The kernel that reads and writes what is offloaded to a disk takes minutes of g++ and libaio-dev, once; the
# tests that need it are skipped until then.
kernels: $(READY)
	$(BIN)/dsforge preflight --quick --build recipes/smoke.yaml \
	  cluster.gpus_per_node=1 parallel='{zero: 3}' offload='{optimizer: nvme, path: disk}'

schema: $(DEV)
	$(BIN)/dsforge schema > docs/reference/recipe.schema.json

# Warnings, a link that leads nowhere among them, fail the build. Nothing is fetched.
docs: $(DEV)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/launching.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/scale.py

$(READY): pyproject.toml constraints.txt
	$(BASE_PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dsforge needs Python 3.11 or newer; make BASE_PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(BASE_PYTHON) -m venv $(VENV)
	@echo 'installing torch, deepspeed, megatron-core and the rest into $(VENV): gigabytes to fetch, some minutes'
	$(INSTALL) pip
	$(INSTALL) torch
	$(INSTALL) --editable '.[train]'
	touch $@

$(DEV): $(READY)
	$(INSTALL) --group dev --group docs
	touch $@

clean:
	rm -rf $(VENV)
