# Everything is installed inside the repository, in .venv. Needs make and python3 >= 3.10.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test lint types format check demo bench proto readme clean

help:
	@echo "make setup    install both packages and the tools into .venv"
	@echo "make test     run the test suite"
	@echo "make lint     ruff's rules"
	@echo "make types    mypy --strict on both packages"
	@echo "make format   format the sources in place"
	@echo "make check    what CI runs: format check, lint, types, tests"
	@echo "make demo     split an ImageNet-like script and run both versions"
	@echo "make bench    the speed table: the split against torch's own loader (ARGS=--peers: and others)"
	@echo "make proto    generate the gRPC code from runtime/feed.proto"
	@echo "make readme   write the tables of codes and files into README.md"
	@echo "make clean    remove .venv and everything that was made"

setup: $(STAMP)

# One pip call for everything, so that its resolver picks a torch and a torchvision that belong together.
$(STAMP): pyproject.toml runtime/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "setup: $(PYTHON) is older than Python 3.10; say make PYTHON=python3.11, for example" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e runtime -e ".[dev]"
	@touch $@

test: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy --strict

format: setup
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

check: setup
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory types
	$(MAKE) --no-print-directory test

demo: setup
	@$(BIN)/python tools/demo.py $(ARGS)

bench: setup
	@$(BIN)/python tools/bench.py $(ARGS)

proto: setup
	$(BIN)/python tools/gen_proto.py

readme: setup
	$(BIN)/python tools/readme_tables.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist demo bench
	rm -rf splitter.egg-info runtime/splitter_runtime.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
