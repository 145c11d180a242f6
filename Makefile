# Two commands on a fresh machine: `make demo` and `make test`. Both do all the set-up (a .venv, the native build).
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.thinwire-setup
NATIVE := $(wildcard csrc/*.* csrc/private/*) CMakeLists.txt

.PHONY: setup demo test lint sanitize bench clean

setup: $(STAMP)

# One pip call, so that constraints.txt decides which torch is taken; the build uses the tools of the .venv itself.
$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    torch numpy scikit-build-core nanobind ninja
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    --no-build-isolation --editable '.[lab,private,dev]'
	# pip goes on without kernels where they do not compile; here that is an error, unless there is no compiler
	command -v $${CXX:-c++} > /dev/null || exit 0; $(BIN)/python -c "import thinwire.kernels._native, thinwire._private"
	touch $@

demo: setup
	$(BIN)/thinwire demo

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# The kernels with sanitizers, called with damaged tables, sizes and payloads; minutes, so not part of `test`.
sanitize: setup
	cmake -S . -B build/sanitize -G Ninja -DTW_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug \
	    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
	cmake --build build/sanitize --target _native
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	    $(BIN)/python tests/kernels/fuzz.py build/sanitize --seconds 60

bench: setup
	$(BIN)/thinwire bench kernels
	$(BIN)/thinwire bench exchange --hosts 4 --rate 1gbit
	$(BIN)/thinwire bench step --model alexnet --hosts 4 --rate 1gbit

clean:
	rm -rf .venv build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
