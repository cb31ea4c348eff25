# Sparklog. `make` alone lists the targets.
PYTHON ?= python3.11
PYTHONS ?= python3.11 python3.12 python3.13
SPARKS ?= 4.1 4.2
VENV   := .venv
BIN    := $(VENV)/bin
SETUP  := $(VENV)/.complete
CLASSES := $(VENV)/.classes

# Two processes take test files in turn, each with a Spark and a broker of its own; those that run long come first.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
LONGEST := tests/kill/test_maintenance_random.py

.DEFAULT_GOAL := help
.PHONY: help setup run test check all-tests unit kafka-test kill-test soak fuzz bench wheel archive yarn-test matrix clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(SETUP) ## build the environment in .venv, with .venv/bin/sparklog, and compile the kernels

$(SETUP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	$(BIN)/python -c "import sparklog.sink.log_sink, sparklog.storage_core.record.reading_kernels"
	@touch $@

run: $(SETUP) ## stream the flights of 2013 into Kafka segments, look at them, verify them
	@command -v java >/dev/null || { echo "Java 17 is needed for Spark: install a JRE, or set JAVA_HOME and PATH"; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m sparklog.pipeline.demo_flights demo

test: $(SETUP) ## lint, types, import contracts and all tests but the long ones
	@command -v java >/dev/null || { echo "Java 17 is needed for Spark: install a JRE, or set JAVA_HOME and PATH"; exit 1; }
	@$(MAKE) --no-print-directory -j2 check all-tests

$(CLASSES): $(SETUP)
	$(BIN)/python -m tests.class_archives
	@touch $@

all-tests: $(SETUP) $(CLASSES)
	$(BIN)/python -m pytest -q --color=no --durations=30 $(SIDE_BY_SIDE)

check: $(SETUP) ## lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(SETUP) ## the tests that need neither Spark nor Kafka
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not spark and not kafka and not kill" tests/unit tests/property tests/conformance

kafka-test: $(SETUP) ## let Kafka's own tools, broker and clients judge what we wrote
	$(BIN)/python -m pytest -q tests/kafka

kill-test: $(SETUP) ## kill the job at every named step and at 50 random moments, a stream 68 times beside maintenance and readers (long form); SPARKLOG_SEED repeats one
	SPARKLOG_SEED=$${SPARKLOG_SEED:-random} SPARKLOG_KILL_ROUNDS=50 $(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m kill tests/kill

soak: $(SETUP) ## 500 kills of a job that does everything, 100 seeds of kills under maintenance, every fault of a disk (hours); SPARKLOG_SEED repeats one
	SPARKLOG_SEED=$${SPARKLOG_SEED:-random} SPARKLOG_SOAK=1 SPARKLOG_KILL_ROUNDS=50 $(BIN)/python -m pytest -q $(SIDE_BY_SIDE) \
		$(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/kill/test_*.py)) tests/faults tests/integration/test_full_disk.py tests/property \
		tests/fuzz tests/kafka/test_object_stream.py tests/objects/test_object_faults.py \
		tests/objects/test_object_stream_faults.py tests/objects/test_object_rivals.py

fuzz: $(SETUP) ## feed a million damaged inputs to every decoder; FUZZ="--seed N" repeats a run (long form)
	$(BIN)/python -m tests.fuzz $(FUZZ)

bench: $(SETUP) ## measure, against baselines in the same run; prints Markdown
	$(BIN)/python -m benchmarks

wheel: $(SETUP) ## build the wheel, for machines that have no checkout
	rm -rf build dist/sparklog-*.whl
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

archive: wheel ## pack Python, Sparklog and its libraries without pyspark for a cluster: dist/environment.tar.gz
	deploy/pack_environment.sh $(BIN)/python dist/sparklog-*.whl dist/environment.tar.gz

yarn-test: archive ## run both jobs on a YARN of one node, and kill an application master (minutes)
	SPARKLOG_ARCHIVE=$(CURDIR)/dist/environment.tar.gz $(BIN)/python -m pytest -q tests/yarn

matrix: wheel ## try the installed wheel on Python 3.11, 3.12, 3.13 and Spark 4.1, 4.2; PYTHONS and SPARKS name others (half an hour)
	tests/matrix/run.sh dist/sparklog-*.whl "$(PYTHONS)" "$(SPARKS)"

clean: ## remove the environment, caches and the demo
	rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
