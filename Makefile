# `make smoke` and `make test` work from a fresh clone, as an ordinary user, without a GPU.
SHELL := /bin/bash
.DELETE_ON_ERROR:

BASE_PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: smoke test test-unit test-e2e lint bench clean

smoke: $(READY)
	$(BIN)/dsforge smoke recipes/smoke.yaml

test: test-unit test-e2e

test-unit: $(READY)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not e2e"

test-e2e: $(READY)
	$(BIN)/python -m pytest -q -m e2e

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/start_up.py

$(READY): pyproject.toml constraints.txt
	$(BASE_PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dsforge needs Python 3.11 or newer; make BASE_PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(BASE_PYTHON) -m venv $(VENV)
	$(PIP) install -q --constraint constraints.txt pip
	$(PIP) install -q --constraint constraints.txt torch
	$(PIP) install -q --constraint constraints.txt --editable '.[train]' --group dev
	touch $@

clean:
	rm -rf $(VENV)
