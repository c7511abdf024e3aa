# Everything a person needs to try, test or change Headrace. A machine with Python 3.11 and make is enough.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
RUN_STAMP := $(VENV)/.ready-to-run
DEV_STAMP := $(VENV)/.ready-to-test
BENCH_STAMP := $(VENV)/.ready-to-measure
CODE := src tests hatch_build.py $(wildcard benchmarks examples)
WORKERS := 2

.PHONY: help setup setup-dev demo tour test lint format types imports unit plans golden pictures narrow mutants coverage-mutants lock bench soak kills clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

setup: $(RUN_STAMP) ## an environment that can run Headrace
setup-dev: $(DEV_STAMP) ## an environment that can also test it

demo: $(RUN_STAMP) ## the quickest look: real flights, several standing queries, live results
	@$(BIN)/headrace demo

tour: $(RUN_STAMP) ## a running hub step by step, each command shown: serve, push, watch, alert, kill, resume
	@$(BIN)/python examples/tour.py $(ARGS)

test: lint unit narrow ## everything that must hold: style, types, import law, tests

lint: $(DEV_STAMP) format types imports ## style, types and import law

format: $(DEV_STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(DEV_STAMP)
	$(BIN)/mypy

imports: $(DEV_STAMP)
	$(BIN)/lint-imports

# A worker takes file after file, in the order of their names, so that what a file makes once is made once. The many
# processes that tests start need not compile the sources again each time, whatever the machine thinks of such files.
unit: export PYTHONDONTWRITEBYTECODE =
unit: $(DEV_STAMP)
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not soak" $(ARGS)

# The kernels of numpy that wide registers choose round otherwise: answers may differ by 1e-9, and in nothing else. What differs
# then differs for most rows, so few examples of each law suffice.
narrow: export PYTHONDONTWRITEBYTECODE =
narrow: $(DEV_STAMP) ## the laws and operators once more, with the wide kernels of numpy switched off
	HYPOTHESIS_PROFILE=narrow NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -m tests.wide_kernels)" \
		$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not soak and not spark" tests/laws tests/operators $(ARGS)

mutants: $(DEV_STAMP) ## mistakes put into the lines of a change, and which of them no test notices (ARGS="--base REV --most 60")
	$(BIN)/python -m tests.mutants $(ARGS)

coverage-mutants: $(DEV_STAMP) ## the same for docs/coverage.md: does the test that a row names fail for a mistake in the code that it describes (ARGS="--rows WIN-3")
	nice $(BIN)/python -m tests.mutants.coverage $(ARGS)

lock: $(DEV_STAMP) ## refresh the exact versions in constraints.txt
	@.ci/lock

plans: $(DEV_STAMP) ## record the plans of tests/planner again, to review what differs
	$(BIN)/python -m tests.planner.record

golden: $(DEV_STAMP) ## record the answers of golden cases (ARGS: files), to review what differs
	$(BIN)/python -m tests.golden.record $(ARGS)

pictures: $(DEV_STAMP) ## the pictures of the console in docs/pictures, taken in a browser
	$(BIN)/python -m tests.server.pictures $(ARGS)

soak: $(DEV_STAMP) ## the long tests: kills, restarts, many generated histories
	HYPOTHESIS_PROFILE=soak $(PYTEST) -m "soak or not soak" --timeout=3600 --session-timeout=360000 $(ARGS)

kills: $(DEV_STAMP) ## two hundred kills of a running driver; goes on where it was cut short
	$(PYTEST) -m "soak or not soak" --timeout=3600 --session-timeout=360000 tests/soak $(ARGS)

bench: $(BENCH_STAMP) ## measure, and write the figures to benchmarks/results
	@test -d benchmarks || { echo "There is no benchmarks folder in this checkout." >&2; exit 1; }
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## forget the environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

# A stamp is younger than these files exactly when the environment holds what they ask for.
ASKED := pyproject.toml constraints.txt hatch_build.py $(wildcard src/headrace/operators/native/*.[ch])

$(RUN_STAMP): $(ASKED) | $(BIN)/python
	@.ci/install
	@touch $@

$(DEV_STAMP): $(ASKED) | $(BIN)/python
	@.ci/install dev,bench,traces
	@touch $@ $(BENCH_STAMP) $(RUN_STAMP)

$(BENCH_STAMP): $(ASKED) | $(BIN)/python
	@.ci/install bench
	@touch $@ $(RUN_STAMP)

$(BIN)/python:
	@.ci/venv $(VENV)
