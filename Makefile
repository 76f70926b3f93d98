PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := torch==2.13.0
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Each e2e test starts processes of its own, so keep this small.
WORKERS ?= 2

.NOTPARALLEL:
.PHONY: venv test lint unit e2e demo bench rerun-acceptance reduce-acceptance bisect-acceptance

venv: $(STAMP)

# torch comes first and by itself: the package does not depend on it, and nothing after it may replace it.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install $(TORCH)
	$(PIP) install -e '.[dev]'
	touch $@

test: lint unit e2e

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: venv
	$(BIN)/python -m pytest -m "not e2e" -n $(WORKERS)

e2e: venv
	$(BIN)/python -m pytest -m e2e -n $(WORKERS)

# Exit status 1 says that a symptom was found, which is what the example is for.
demo: venv
	$(BIN)/torchtriage diagnose examples/rescale.py || test $$? -eq 1

# Every known program is reduced to a script that fails by itself. Takes about half an hour.
reduce-acceptance: venv
	REDUCE_CASES=all $(BIN)/python -m pytest tests/acceptance/test_known_reduced.py

# Fork mode and rerun mode give the same verdict on every known case. Takes about half an hour.
rerun-acceptance: venv
	RERUN_CASES=all $(BIN)/python -m pytest -m cases -k anew -n $(WORKERS)

# Bisects real releases of torch with real installations: about 7 GB in the store of environments, half an hour.
bisect-acceptance: venv
	BISECT_ACCEPTANCE=1 $(BIN)/python -m pytest tests/acceptance/test_bisect_releases.py

bench: venv
	$(BIN)/python benchmarks/run.py
