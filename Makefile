# Every target makes the environment it needs, so `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEBUG_VENV ?= .venv-debug
ASAN_VENV ?= .venv-asan
COVERAGE_VENV ?= .venv-coverage
OUT ?= demo-output
# What models come from and go to; where one of them cannot be installed, its tests skip themselves.
# XGBOOST=xgboost where there is no smaller one, as on macOS.
XGBOOST ?= xgboost-cpu
LIBRARIES ?= scikit-learn joblib skops $(XGBOOST) lightgbm catboost onnx onnxruntime skl2onnx \
	palmerpenguins polars pyarrow
# Processes that share the tests; 0 runs them in one, with the debugger and the output at hand.
WORKERS ?= auto
IN_PARALLEL = -n $(WORKERS) --dist worksteal
KERNELS := $(wildcard cython_ext/*/*.pyx cython_ext/*/*.pxd)

.DEFAULT_GOAL := help
.PHONY: help build environments demo test test-all lint test-debug test-asan coverage coverage-kernels coverage-python fuzz soak bench paper pictures datasets clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

$(VENV)/.built: setup.py pyproject.toml $(KERNELS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

build: $(VENV)/.built ## make the environment and compile the kernels

demo: build ## train on shipped data, verify and evaluate the result
	@BIN=$(BIN) OUT=$(OUT) sh scripts/demo.sh

$(VENV)/.tools: $(VENV)/.built
	$(BIN)/python -m pip install --quiet 'metasilvae[test,lint]'
	@touch $@

$(VENV)/.libraries: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet --only-binary :all: $(LIBRARIES) || for library in $(LIBRARIES); do \
	    $(BIN)/python -m pip install --quiet --only-binary :all: $$library || echo "no $$library; its tests skip themselves"; done
	@touch $@

test: $(VENV)/.libraries ## run the fast tests, on all cores
	$(BIN)/python -m pytest $(IN_PARALLEL) -m 'not slow'

test-all: $(VENV)/.libraries ## run all tests, on all cores
	$(BIN)/python -m pytest $(IN_PARALLEL)

lint: $(VENV)/.tools ## ruff, mypy and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

$(DEBUG_VENV)/.built: setup.py pyproject.toml $(KERNELS) $(shell find metasilvae datasets -type f ! -name '*.so' ! -name '*.pyc')
	test -x $(DEBUG_VENV)/bin/python || $(PYTHON) -m venv $(DEBUG_VENV)
	METASILVAE_DEBUG=1 $(DEBUG_VENV)/bin/python -m pip install --quiet '.[test]'
	@touch $@

# What `.ci/run` needs.
environments: $(VENV)/.libraries $(DEBUG_VENV)/.built

# What these folders ask of the kernels, others ask too: documents, clusters, pictures, other libraries.
BEYOND_KERNELS := project execution interop output datasets/test_remote.py datasets/test_transfer.py \
	cli/test_cluster.py cli/test_plot.py test_api.py test_sklearn.py

test-debug: $(DEBUG_VENV)/.built ## run the tests of the kernels with bounds checks
	METASILVAE_EXPECT_DEBUG=1 $(DEBUG_VENV)/bin/pytest $(IN_PARALLEL) $(foreach name,$(BEYOND_KERNELS),--ignore=tests/$(name))

$(ASAN_VENV)/.built: setup.py pyproject.toml $(KERNELS) $(shell find metasilvae datasets -type f ! -name '*.so' ! -name '*.pyc')
	test -x $(ASAN_VENV)/bin/python || $(PYTHON) -m venv $(ASAN_VENV)
	METASILVAE_SANITIZE=1 $(ASAN_VENV)/bin/python -m pip install --quiet '.[test]'
	@touch $@

# Tests that spend their time in kernels, with few random cases each, because everything takes many times as long.
KERNEL_TESTS ?= core formats perturbations verification analysis training/test_evolution.py training/test_forest.py \
	datasets/test_summary.py test_model.py test_prediction.py project/test_fuzz.py

test-asan: $(ASAN_VENV)/.built ## run the tests of the kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc METASILVAE_EXAMPLES=30 \
	$(ASAN_VENV)/bin/pytest $(addprefix tests/,$(KERNEL_TESTS))

$(COVERAGE_VENV)/.built: setup.py pyproject.toml $(KERNELS) $(shell find metasilvae datasets -type f ! -name '*.so' ! -name '*.pyc')
	test -x $(COVERAGE_VENV)/bin/python || $(PYTHON) -m venv $(COVERAGE_VENV)
	METASILVAE_COVERAGE=1 $(COVERAGE_VENV)/bin/python -m pip install --quiet '.[test]'
	$(COVERAGE_VENV)/bin/python -m pip install --quiet --only-binary :all: $(LIBRARIES) || true
	@touch $@

# Kernels that record each line take many times as long: the fast tests, with few random cases each (EXAMPLES).
coverage: $(COVERAGE_VENV)/.built ## report which lines of Python and Cython the fast tests run (TESTS for others)
	rm -f .coverage .coverage.*
	export PYTHONPATH=$(CURDIR)/scripts/line_coverage METASILVAE_EXAMPLES=$(or $(EXAMPLES),20); code=0; \
	$(COVERAGE_VENV)/bin/pytest $(IN_PARALLEL) --cov --cov-report= $(or $(TESTS),-m 'not slow') || code=$$?; \
	$(COVERAGE_VENV)/bin/python scripts/line_coverage/report.py && exit $$code

coverage-kernels: TESTS = -k 'not thousands' $(addprefix tests/,$(KERNEL_TESTS))
coverage-kernels: coverage ## the same for the tests of the kernels alone

coverage-python: $(VENV)/.libraries ## report which lines of Python the fast tests run, with ordinary kernels
	$(BIN)/python -m pytest $(IN_PARALLEL) -m 'not slow' --cov=metasilvae --cov-config=scripts/line_coverage/python.rc --cov-report=term

fuzz: build ## give every reader broken files (RUNS for each)
	$(BIN)/python scripts/fuzz/run.py all --runs $(or $(RUNS),100000)

soak: $(VENV)/.tools ## random commands against the oracles of the tests (MINUTES)
	$(BIN)/python scripts/soak.py --minutes $(or $(MINUTES),10)

bench: build ## measure loading and verifying (SILVA=path/to/silva adds the comparison)
	$(BIN)/python scripts/bench_load.py
	$(BIN)/python scripts/bench_verify.py $(if $(SILVA),--silva $(SILVA))

paper: build ## run the experiments of the paper again (QUICK=1 takes minutes, DATA=folder fetches nothing that is there)
	$(BIN)/python -m pip install --quiet 'metasilvae[plot,sklearn]'
	$(BIN)/python scripts/paper.py $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA)) $(PAPER_OPTIONS)

pictures: $(VENV)/.tools ## draw the curves of the documents again (DATA=folder, else fetched data)
	$(BIN)/python scripts/draw_curves.py $(if $(DATA),--data $(DATA)) --sets mnist-1-5
	$(BIN)/python scripts/draw_curves.py $(if $(DATA),--data $(DATA)) --sets cod-rna --output docs/curves-cod-rna.svg

datasets: build ## make the shipped data sets again (needs scikit-learn)
	$(BIN)/python -m pip install --quiet '.[datasets]'
	$(BIN)/python scripts/make_datasets.py

clean: ## remove environments and build products
	rm -rf $(VENV) $(DEBUG_VENV) $(ASAN_VENV) $(COVERAGE_VENV) build dist *.egg-info demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find metasilvae -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
