# Two commands do everything on a machine with Python 3.11, make and pip: `make demo` and `make test`.
# All files made here stay inside the checkout; an extra is installed again only when pyproject.toml has changed.

# The first interpreter that runs and is new enough; `make PYTHON=/path/to/python test` chooses another.
PYTHON ?= $(shell for name in python3.11 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
PYTEST_ARGS ?=
# Processes that share the tests, file by file; `make test PYTEST_ARGS="-n 0 --pdb"` runs them in one.
TEST_PROCESSES ?= 2
# Further extras of pyproject.toml for the tests that need them: `make extras test EXTRAS="spark"`.
EXTRAS ?=
BENCH_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
installed = $(VENV)/.installed-$(1)
SHARED := -n $(TEST_PROCESSES) --dist loadfile
QUICK := not processes and not medium and not slow and not fault and not parity and not property_long

export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-all extras lint format bench bench-check clean
.NOTPARALLEL:

help:
	@printf "%-18s%s\n" "make demo" "train, evaluate, save and reload a model on a real table"
	@printf "%-18s%s\n" "make test-quick" "tests that start no process, in two minutes; PYTEST_ARGS='-k binning' narrows them"
	@printf "%-18s%s\n" "make test" "the tests without the slow ones, in twelve minutes"
	@printf "%-18s%s\n" "make test-all" "every test, the slow ones and the comparisons with other libraries included"
	@printf "%-18s%s\n" "make extras" "install EXTRAS='spark', for tests that are skipped without them"
	@printf "%-18s%s\n" "make lint" "ruff, mypy and the import contracts"
	@printf "%-18s%s\n" "make format" "let ruff rewrite what it can"
	@printf "%-18s%s\n" "make bench" "measure against the other libraries; BENCH_ARGS are passed on"
	@printf "%-18s%s\n" "make bench-check" "fail if a figure is a tenth worse than at the previous commit; BENCH_ARGS='--data-dir DIR'"
	@printf "%-18s%s\n" "make clean" "remove .venv and all caches"

demo: $(call installed,demo)
	$(RUN) examples/demo.py

test-quick: $(call installed,dev)
	$(RUN) -m pytest $(SHARED) -m "$(QUICK)" $(PYTEST_ARGS)

test: $(call installed,dev)
	$(RUN) -m pytest $(SHARED) $(PYTEST_ARGS)

test-all: $(call installed,dev) $(call installed,bench)
	$(RUN) -m pytest $(SHARED) -m "" $(PYTEST_ARGS)

extras: $(foreach extra,$(EXTRAS),$(call installed,$(extra)))

lint: $(call installed,dev)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

format: $(call installed,dev)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(call installed,bench)
	$(RUN) -m benchmarks $(BENCH_ARGS)

bench-check: $(call installed,dev)
	$(RUN) -m benchmarks.bench_check $(BENCH_ARGS)

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(call installed,%): pyproject.toml | $(RUN)
	@echo "Installing dmlgbm[$*] into $(VENV); the first time this takes a few minutes."
	$(RUN) -m pip install --quiet --editable ".[$*]"
	@touch $@

# Some distributions ship Python without ensurepip; there the interpreter's own pip fills the environment.
$(RUN):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found: install it or set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || \
		{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(RUN) install --quiet pip; }
