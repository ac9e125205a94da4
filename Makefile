# Two commands for a newcomer: `make demo` and `make test`. Both make .venv and install into it.
PYTHON ?= python3
BIN := .venv/bin

# Tests start some hundred processes: without stored bytecode, each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint unit bench clean docs site edge fuzz arm faults

demo: .venv/demo.stamp
	$(BIN)/hearsay demo

test: lint unit

# Everything: what make test leaves out too (the tests marked slow, and three of four examples of each property).
PROFILE ?= deep
MARKED ?=
test-all: lint
	$(BIN)/pytest -n auto --dist loadgroup --hypothesis-profile=$(PROFILE) -m "$(MARKED)"

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: .venv/dev.stamp
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow"

# Modest sizes: some minutes in all. Those that need the reference data sets say so if they are not there.
bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks.speed.device
	$(BIN)/python -m benchmarks.speed.numeric
	$(BIN)/python -m benchmarks.speed.ingest
	$(BIN)/python -m benchmarks.speed.forgetting
	$(BIN)/python -m benchmarks.speed.repeats --reports 2500000 --buckets 2
	$(BIN)/python -m benchmarks.speed.cluster --reports 4000000
	$(BIN)/python -m benchmarks.estimates.variance
	$(BIN)/python -m benchmarks.guarantees.averaging
	$(BIN)/python -m benchmarks.central.smooth
	-$(BIN)/python -m benchmarks.models.accuracy --repeats 10 --big-repeats 2 --engine vector
	-$(BIN)/python -m benchmarks.models.accuracy --form numeric --repeats 5
	-$(BIN)/python -m benchmarks.central.accuracy --data seeds mushroom --repeats 1
	$(BIN)/python -m benchmarks.central.figures time --quick --folder build
	-$(BIN)/python -m benchmarks.central.figures weights --quick --folder build
	-$(BIN)/python -m benchmarks.central.figures methods --quick --folder build
	-$(BIN)/python -m benchmarks.federated.reference_rows --data votes spect --repeats 20
	-$(BIN)/python -m benchmarks.federated.figures accuracy --quick --folder build
	-$(BIN)/python -m benchmarks.masked.reference_rows --repeats 20 --adult-repeats 10
	-$(BIN)/python -m benchmarks.masked.figures car --quick --folder build
	-$(BIN)/python -m benchmarks.reproduce --quick
	-$(BIN)/python -m benchmarks.models.estimators budgets --repeats 10 --big-repeats 2
	-$(BIN)/python -m benchmarks.models.estimators devices --repeats 10 --big-repeats 2 --devices 10 300 --warnings 1

# What of docs/ is made from other files: the page of commands, the list of names, the index of decisions, the picture of the halls. Tests
# compare each with its source.
docs: .venv/dev.stamp
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_surface.py
	$(BIN)/python docs/generate_decisions.py
	$(BIN)/python tests/architecture/halls.py

# The documentation as a site: open build/site/index.html. Any warning is a failure.
site: .venv/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The device's own wheel, from this tree: protocol and edge_sdk, for `pip install dist/hearsay_bayes_edge-*.whl` on a device.
edge: .venv/bin/python
	$(BIN)/python distribution/edge.py

# Kills, failures and power cuts at every call of a device or a curator's budget, with more of chance than in the tests.
faults: .venv/dev.stamp
	HEARSAY_FAULT_SEEDS=20 $(BIN)/pytest -n auto tests/edge_sdk/test_killed.py tests/edge_sdk/test_state.py \
		tests/aggregator/test_killed_folders.py

# A minute of coverage-guided fuzzing; for longer: $(BIN)/python tests/fuzz/run.py --seconds 1800 --jobs 2
fuzz: .venv/dev.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python tests/fuzz/run.py --seconds 60

# The device tests inside Debian 12 for ARM, 64 and 32 bits, under emulation. By hand: root, debootstrap, qemu-user-static.
arm:
	.ci/arm

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/demo.stamp: .venv/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[aggregator,demo]'
	touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all]'
	touch $@ .venv/demo.stamp

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output
