# Two commands on a fresh machine: `make demo` and `make test`. Both do all the set-up (a .venv, the native build).
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.thinwire-setup
NATIVE := $(wildcard csrc/*.* csrc/private/*) CMakeLists.txt

.PHONY: setup demo test lint bench clean

setup: $(STAMP)

# One pip call, so that constraints.txt decides which torch is taken; the build uses the tools of the .venv itself.
$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    torch numpy scikit-build-core nanobind ninja
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    --no-build-isolation --editable '.[lab,private,dev]'
	touch $@

demo: setup
	$(BIN)/thinwire demo

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/thinwire bench kernels
	$(BIN)/thinwire bench exchange --hosts 4 --rate 1gbit
	$(BIN)/thinwire bench step --model alexnet --hosts 4 --rate 1gbit

clean:
	rm -rf .venv build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
