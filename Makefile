# `make demo` and `make test` are the two commands of the README. Each makes the
# virtual environment it needs, so a machine with Python >= 3.11, make and git is enough.
# `make test-frameworks` tests each framework's adapter in an environment of its own.
# `make bench` measures the speed beside others, for about half an hour; BENCH= takes its options.
# `make bench-check` counts what the hot paths do and fails if it is more than was recorded.
# `make exhaustive` and `make mutants` prove the core and its tests; see docs/inside.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-frameworks bench bench-check exhaustive mutants lint format clean

demo: $(READY)
	$(BIN)/dispatch demo

test: $(READY)
	$(BIN)/pytest -n auto

test-frameworks: $(READY)
	$(BIN)/python -m tests.frameworks

bench: $(READY)
	$(BIN)/python -m benchmarks.environment
	$(VENV)/bench/bin/python -m benchmarks $(BENCH)

bench-check: $(READY)
	$(BIN)/python -m benchmarks.check

exhaustive: $(READY)
	$(BIN)/python -m tests.exhaustive
	$(BIN)/python -m tests.model.check

mutants: $(READY)
	$(BIN)/python -m tests.mutants

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
