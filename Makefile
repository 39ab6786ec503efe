# Needs Python 3.11 or newer with venv and pip, and make.
#   make demo    the demo, on a photo that comes along     (make demo PHOTO=mine.jpg)
#   make test    the tests                                 (make test PYTEST="-m slow")
#   make lint    ruff (rules and formatting) and mypy
#   make docs    the documents, into build/docs
#   make bench   the overhead benchmark
#   make campaign MINUTES=10    hard use at random, against NumPy    (SEED=1, JSON=found.json)
#   make clean   remove what the others made

PYTHON ?= python3
VENV ?= .venv
PHOTO ?=
PYTEST ?=
MINUTES ?= 10
SEED ?=
JSON ?=
BIN := $(VENV)/bin

.PHONY: demo test lint docs bench campaign clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	$(BIN)/hjit demo $(PHOTO)

# BLAS with a thread for each core is slow beside a second process that does the same. The tests of a file share what
# their process has compiled and searched; Python compiles no module anew in each of the processes that tests start.
test: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q $(PYTEST)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks overhead --json benchmarks/results/overhead.json

campaign: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.campaign --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

# One file for each set of packages, newer than what it was installed from.
$(VENV)/.demo $(VENV)/.test $(VENV)/.docs $(VENV)/.bench: $(VENV)/.%: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "hjit needs Python 3.11 or newer: make ... PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

clean:
	rm -rf .venv build dist demo.png .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find hjit tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
