# Two commands on a fresh machine: `make demo` and `make test`. Both do all the set-up (a .venv, the native build).
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.thinwire-setup
SOURCES := $(wildcard csrc/*.h csrc/*.cpp private/csrc/*.h private/csrc/*.cpp)
NATIVE := $(SOURCES) CMakeLists.txt private/CMakeLists.txt
PACKAGES := .[dev] private lab
MODULES := .venv/.modules

.PHONY: setup demo test test-frontends test-timing lint format docs site picture sanitize bench clean test-gpu gpu-compile

setup: $(STAMP)

# One pip call, so that constraints.txt decides which torch is taken; the build uses the tools of the .venv itself.
$(STAMP): pyproject.toml private/pyproject.toml lab/pyproject.toml constraints.txt $(NATIVE) $(MODULES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    torch numpy scikit-build-core nanobind ninja
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    --no-build-isolation $(PACKAGES:%=--editable './%')
	# pip goes on without kernels where they do not compile; here that is an error, unless there is no compiler
	command -v $${CXX:-c++} > /dev/null || exit 0; $(BIN)/python -c "import thinwire.kernels._native, thinwire_private._native"
	touch $@

# The editable install knows where each module lies: it is made anew when one is added, moved or removed.
$(MODULES): FORCE
	@mkdir -p .venv; find src private/src lab/src -name '*.py' | sort > $@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@
FORCE:

demo: setup
	$(BIN)/thinwire demo

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(SOURCES)

# What is made from the source: docs/reference/api.md from the docstrings.
docs: setup
	$(BIN)/python tools/make_api.py

# The documentation as a web site, in build/site. Its generator lives in an environment of its own.
site: build/site-venv/.ready
	NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build --strict --config-file tools/mkdocs.yml --site-dir ../build/site
	@echo "build/site/index.html"

build/site-venv/.ready: docs/site-requirements.txt
	$(PYTHON) -m venv build/site-venv
	build/site-venv/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

# The README's picture, from recorded runs: speed of docs/records/grid.jsonl, accuracy of the file named here.
ACCURACY ?= docs/records/accuracy-cifar10.jsonl
LATE = start=5% @ feedback=momentum:mask=off,lr=on
SHOWN ?= ddp,terngrad,terngrad:1,qsgd:4,fft:0.85,topk:0.04,$(LATE),sign:$(LATE)
picture: setup
	$(BIN)/thinwire picture docs/figures/gain.svg --accuracy $(ACCURACY) --codecs "$(SHOWN)"

# Four files at once, also on two cores: tests of real processes wait for one another much of the time.
test: lint
	$(BIN)/python -m pytest -n 4 --dist loadfile

# The front ends with their frameworks, in an environment of their own (2 GB). It gets thinwire as it is now.
FRONTENDS := build/frontends-venv
test-frontends: $(FRONTENDS)/.installed
	PYTHONPATH=tests/frontends $(FRONTENDS)/bin/python -m pytest tests/frontends -n 4 --dist loadfile

$(FRONTENDS)/.installed: $(FRONTENDS)/.ready $(shell find src -name '*.py')
	$(FRONTENDS)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
	touch $@

$(FRONTENDS)/.ready: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv $(FRONTENDS)
	$(FRONTENDS)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 numpy scikit-build-core nanobind ninja
	$(FRONTENDS)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation torch==2.13.0 pytest \
	    pytest-timeout pytest-xdist hypothesis './.[lightning,accelerate,transformers,ray]'
	touch $@

# Properties of kernels for GPUs on Triton's interpreter, without a GPU: 900 cases for each of 14. Half an hour of a core;
# called again it goes on where it was ended. FAMILY="topk sign" runs those of some families.
FAMILY ?=
test-gpu: setup
	$(BIN)/python tests/kernels/properties.py $(if $(FAMILY),--family $(FAMILY))

# Compiles kernels for GPUs ahead of time, without one; fails if a register spills. PAGE=--page writes docs/background/gpu.md.
PAGE ?=
gpu-compile: setup
	$(BIN)/python tools/gpu_compile.py $(PAGE)

# What depends on how fast the machine is: durations, and what auto decides by them. On a quiet machine, not in CI.
test-timing: setup
	$(BIN)/python -m pytest -m timing -p no:xdist

# The kernels with sanitizers, called with damaged tables, sizes and payloads; then once more, counting branches.
# Minutes, so not part of `test`, which fuzzes the ordinary build for seconds (tests/kernels/test_kernels_fuzz.py).
PAYLOADS ?= 1000000
CMAKE_NATIVE = cmake -S . -G Ninja -DCMAKE_BUILD_TYPE=Debug \
    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
sanitize: setup
	$(CMAKE_NATIVE) -B build/sanitize -DTW_SANITIZE=ON
	cmake --build build/sanitize --target _native
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	    $(BIN)/python tests/kernels/fuzz.py build/sanitize --payloads $(PAYLOADS)
	$(CMAKE_NATIVE) -B build/coverage -DTW_COVERAGE=ON
	cmake --build build/coverage --target _native
	find build/coverage -name '*.gcda' -delete
	$(BIN)/python tests/kernels/fuzz.py build/coverage --payloads $$(($(PAYLOADS) / 10)) --decoders-only
	$(BIN)/python tests/kernels/branches.py build/coverage

bench: setup
	$(BIN)/thinwire bench kernels
	$(BIN)/thinwire bench exchange --hosts 4 --rate 1gbit
	$(BIN)/thinwire bench step --model alexnet --hosts 4 --rate 1gbit

clean:
	rm -rf .venv build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
