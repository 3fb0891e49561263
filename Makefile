# Commands for users, developers and CI. `make` lists them.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do command -v $$p && break; done)
DATA   ?= data
TESTS  ?=
ARGS   ?=

VENV   := .venv/bin
PYTEST  = $(VENV)/python -m pytest
WORKERS = -n auto --dist worksteal
SLOWEST = --durations 30 --durations-min 1
# Without a Python, print a sentence and not "command not found".
SETUP   = @test -n "$(PYTHON)" || { echo "Clarion needs Python 3.11 or newer. Install python3, then run make again." >&2; exit 1; }; \
          "$(PYTHON)" tools/bootstrap.py

.DEFAULT_GOAL := help
.PHONY: help install run test test-all check bench faults simulate mutants lock release clean

help: ## List these commands
	@echo "Clarion, a self-hosted notification platform. Start it with: make run"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'

install: ## Install Clarion into .venv
	$(SETUP) runtime
	@echo "Clarion is installed. Start it with: make run"

# With `exec`, Ctrl-C and SIGTERM reach the server directly, which shuts down cleanly.
run: ## Install, set up and start Clarion (DATA=folder, default: data)
	$(SETUP) runtime
	@$(VENV)/clarion init --data "$(DATA)" --if-needed --greet
	@exec $(VENV)/clarion serve --data "$(DATA)" --demo on

# A path is run whole, whatever the lanes of its tests are.
test: ## Run the tests (TESTS=path, ARGS="more pytest options")
	$(SETUP) dev
	@$(PYTEST) $(WORKERS) $(if $(TESTS),,--lane core) $(ARGS) $(TESTS)

# What measures comes last, and nothing runs at the same time.
test-all: test ## Run those, then crashes, browsers, docs, three nodes, and what measures
	@$(PYTEST) $(WORKERS) --lane rest $(SLOWEST) $(ARGS)
	@$(PYTEST) --lane timing $(SLOWEST) $(ARGS)

check: ## Check format, lint, types, imports and docs
	$(SETUP) dev
	@$(VENV)/ruff format --check .
	@$(VENV)/ruff check .
	@$(VENV)/mypy
	@CLARION_TEST_SERVERS=none $(VENV)/python -m pytest -q tests/unit/test_layers.py tests/unit/test_docs.py

bench: ## Run the benchmarks and print a table (ARGS="options")
	$(SETUP) dev
	@$(VENV)/python -m bench $(ARGS)

# Nothing runs at the same time, so what is promised in seconds is judged as well.
faults: ## Run the long crash and chaos tests (hours; ARGS="more pytest options")
	$(SETUP) dev
	@CLARION_TEST_SIZE=night CLARION_TEST_LANE=timing $(VENV)/python -m pytest tests/faults tests/ops $(ARGS)

simulate: ## Run the pipeline on a simulated disk, network and clock (ARGS="--seeds 1000")
	$(SETUP) dev
	@$(VENV)/python -m tests.simulation.run $(ARGS)

mutants: ## Check that planted faults are caught by the tests (ARGS="names, or --whole")
	$(SETUP) dev
	@$(VENV)/python tools/mutants.py $(ARGS)

lock: ## Update the lock files from pyproject.toml (ARGS=--upgrade for newer versions)
	$(SETUP) dev
	@$(VENV)/python tools/lock.py $(ARGS)

release: ## Build a wheel, an sdist and the clients with SBOM, notes and checksums into dist/
	$(SETUP) dev
	@$(VENV)/python tools/release.py $(ARGS)

clean: ## Delete .venv and caches; your data is kept
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
