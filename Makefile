# Everything is made from a fresh checkout with Python 3.11 or newer and make; `make help` lists it.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNEL := $(VENV)/.kernel

# Options for pytest: make test ARGS='-k report -x'
ARGS ?=

# Tiny tensors run faster, and the same everywhere, on one thread.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# The first interpreter found that can make the environment; name another with PYTHON=...
PYTHONS := $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14 python)
USABLE  := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv try ntm-demo test check cases repairs bench bench-lifetime bench-ntm clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) $(KERNEL) ## make .venv and install onegraph with its development tools

$(STAMP): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c '$(USABLE)' 2>/dev/null; then \
	    for python in $(PYTHONS); do \
	        if "$$python" -c '$(USABLE)' 2>/dev/null; then found="$$python"; break; fi; \
	    done; \
	    if [ -z "$${found:-}" ]; then \
	        echo "make: no Python 3.11 or newer with venv and ensurepip among: $(PYTHONS)" >&2; \
	        echo "make: name one with: make venv PYTHON=/path/to/python" >&2; \
	        exit 1; \
	    fi; \
	    echo "making $(VENV) with $$("$$found" --version)"; \
	    "$$found" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "installing onegraph and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,ntm]'
	@touch $@

# Without a compiler, or where it fails, one line says so, and all works without the kernel.
$(KERNEL): $(STAMP) src/onegraph/ntm/window/kernel.cpp src/onegraph/ntm/window/build.py
	@$(BIN)/onegraph ntm build || true
	@touch $@

# The program fails by design, with Python's own status 1. Any other status, or a run that explains
# nothing, is a fault of onegraph; the JSON beside the report shows which it was.
try: $(STAMP) $(KERNEL) ## run onegraph on a training program that fails, and show its report
	@rm -f $(VENV)/try.json
	$(BIN)/onegraph run --json $(VENV)/try.json examples/fusion_controller.py; [ $$? -eq 1 ]
	@grep -q '"symptom": *"second-backward"' $(VENV)/try.json || \
	    { echo "make try: onegraph did not explain the failure" >&2; exit 1; }

# From nothing, whatever is there: the folder is made anew.
ntm-demo: $(STAMP) $(KERNEL) ## train a memory network to copy, draw what it does, and measure it
	@rm -rf ntm-demo
	$(ONE_THREAD) $(BIN)/onegraph ntm train copy --preset demo --out ntm-demo
	$(ONE_THREAD) $(BIN)/onegraph ntm plot ntm-demo
	@$(ONE_THREAD) $(BIN)/onegraph ntm eval ntm-demo --length 10

test: check $(KERNEL) ## check, then run every test
	$(ONE_THREAD) $(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## lint, formatting, types and the layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

cases: $(STAMP) ## print the scoreboard over the corpus of real faults
	$(ONE_THREAD) $(BIN)/python tests/scoreboard.py

repairs: $(STAMP) ## apply every edit that reports on the corpus print, and run the programs again
	$(ONE_THREAD) $(BIN)/python tests/repairs.py

bench: $(STAMP) ## measure what recording costs
	$(BIN)/python -m benchmarks.cost

bench-lifetime: $(STAMP) ## measure what the primitives save and cost
	$(BIN)/python -m benchmarks.lifetime

bench-ntm: $(STAMP) $(KERNEL) ## measure how fast memory networks train; PEER=NAME=DIR for a peer
	$(BIN)/python -m benchmarks.ntm $(addprefix --peer ,$(PEER))

clean: ## remove caches and build output, but keep .venv
	rm -rf build dist htmlcov ntm-demo .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -path ./.git -prune -o -name __pycache__ -type d \
	    -exec rm -rf {} +
