# make setup        .venv with millrace-broker in editable form
# make demo         set-up + the whole path on real flights (Java 17)
# make test         set-up + the checks that every change must pass; needs Python 3.11+, Java 17 and make
# make etl          the checks of the Spark ETL: everything that starts Spark (Java 17); ETL_PART=1/2 runs half of them
# make etl-faults   drivers of the Spark ETL killed at length, and a cluster
# make faults       power cuts, kills, damage and full disks at length; FAULTS_SCALE=0.1 runs a tenth
# make shapes       the worst shapes of every API in every version at 1 MB: steps of the event loop, and memory (half an hour)
# make mutants      breaks each guarantee of the log and of groups once; fails unless a test notices; MUTANTS_PART, MUTANTS_CHANGED
# make conformance  stock clients in other languages, where their toolchains exist; the same requests to Apache Kafka
# make fuzz         hostile input for every decoder, guided by coverage; FUZZ_RUNS inputs for each (Linux on x86-64)
# make bench        compares with Apache Kafka (Java 17): docs/benchmarks, and checks the bounds of the console in Chromium,
#                   within an hour; QUICK=1: build, within 8 minutes
# make bench-check  the short run; fails where a ratio to Apache Kafka is far below the one in docs/benchmarks
# make bench-against CHECKOUT=FOLDER   compares this tree with another checkout, in turns of one run
# make profile      flame graphs of gateway and storage under load, and the cost of a megabyte, into build/profile (Linux)
# make bench-parts  figures of administration, of groups, of the log and of protocol_lib
# make install-test the wheel in an empty environment: README's pytest example, millrace up and topic
# make compose-test the whole path in containers (needs a Docker engine)
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := protocol-lib services/contract services/chassis storage-svc gateway-svc admin-api spark assembly/demo assembly/launcher
# A failed test runs once more at the end: tests/support/unsteady.py. A replaced worker of xdist runs the file of the crash
# again, or waits for ever.
PYTEST := $(BIN)/pytest -q --once-more --max-worker-restart=0
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup jars demo test lint etl etl-faults faults shapes mutants fuzz conformance bench bench-check bench-against bench-parts profile install-test compose-test generate clean

setup: .venv/ready

WALKER := protocol-lib/src/protocol_lib/records/_walker

.venv/ready: requirements/development.txt pyproject.toml hatch_build.py $(WALKER).py $(WALKER).pxd
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Millrace needs Python 3.11 or newer")'
	@echo "Installing $$(grep -c '==' requirements/development.txt) packages into .venv. This takes a minute or two."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -r requirements/development.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
	@$(BIN)/python -c 'from protocol_lib.records import walker; print("Walker of records:", walker.FORM)'
	@echo "Ready. Start the broker with .venv/bin/millrace up --data-dir data"

demo: setup
	$(BIN)/python -m millrace_demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES:%=%/src) bench
	$(BIN)/lint-imports

# Apache Kafka, for tests that ask it: fetched once, before a test waits for it.
jars: setup
	-$(BIN)/python tests/support/maven.py

REQUIRED = "not etl and not compose and not conformance and not slow and not install"
test: setup
	$(MAKE) --no-print-directory -j 3 lint jars build/collected
	$(PYTEST) -n 3 --no-loadscope-reorder -m $(REQUIRED) tests

# The tests' source as pytest compiles it, for all of its processes: once in a clone, while mypy has the other processor.
build/collected:
	@mkdir -p build
	@$(BIN)/pytest -q --collect-only -m $(REQUIRED) tests > $@.log 2>&1 && mv $@.log $@ || { tail -n 30 $@.log; exit 1; }

# Two processes, each with a session of Spark; the tests of a file share one process (tests/conftest.py). The longer files
# come first, so that both processes end together. No other folder has tests of Spark: tests/unit/test_etl_target.py.
ETL_TESTS = tests/e2e tests/unit/spark_etl
etl: jars
	$(PYTEST) -n 2 --no-loadscope-reorder -m "etl and not compose and not conformance and not slow and not install" $(ETL_PART:%=--part %) $(ETL_TESTS)

# Drivers killed at every step of a table's commit and of its commands, and an executor of a cluster.
etl-faults: jars
	$(PYTEST) -m "etl and slow" tests

# How much of the full suites `make faults` runs: docs/contributing/measurements.md has the figures for 1.
FAULTS_SCALE ?= 1
export FAULTS_SCALE

faults: setup
	$(PYTEST) -n 2 --no-loadscope-reorder -m "slow and not etl" tests/faults tests/clients tests/unit tests/wire --ignore tests/wire/test_bounded_requests.py

shapes: setup
	$(PYTEST) -m slow tests/wire/test_bounded_requests.py

# Every mutant. MUTANTS_PART=2/3: every third from the second on. MUTANTS_CHANGED=COMMIT: those whose code or tests changed
# since then, and the part. MUTANTS_MAX=40: no more than that of them.
mutants: setup
	$(BIN)/python -m tests.mutants.run $(MUTANTS_PART:%=--part %) $(MUTANTS_CHANGED:%=--changed %) $(MUTANTS_MAX:%=--at-most %)

conformance: jars
	$(PYTEST) -n 2 -m conformance tests

# Builds the wheel and uses it in an empty environment, as somebody else's project does.
install-test: setup
	$(PYTEST) -m install tests

compose-test: setup
	$(PYTEST) -m compose tests/compose

FUZZ_RUNS ?= 100000
fuzz: setup
	$(BIN)/pip install --quiet -r requirements/fuzz.txt
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ_RUNS)
	$(BIN)/python tests/fuzz/sanitized_walker.py

bench: setup
	$(BIN)/python bench/side_by_side.py $(if $(QUICK),--quick,--publish)
	$(BIN)/python bench/browser.py $(if $(QUICK),--quick)

bench-check: setup
	$(BIN)/python bench/side_by_side.py --quick --check

bench-against: setup
	$(BIN)/python bench/against.py $(CHECKOUT)

profile: setup
	$(BIN)/python bench/profiling.py

bench-parts: setup
	$(BIN)/python bench/groups.py
	$(BIN)/python bench/administration.py
	$(BIN)/python bench/starts.py
	$(BIN)/python bench/log.py
	$(BIN)/python bench/records.py
	$(BIN)/python bench/codec.py
	$(BIN)/python bench/tls.py
	$(BIN)/python bench/logins.py
	$(BIN)/python bench/schemas.py

generate: setup
	@mkdir -p build
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python services/contract/generate.py
	$(BIN)/python -m millrace.reference
	$(BIN)/python -m admin_api.openapi > build/openapi.json && mv build/openapi.json admin-api/openapi.json

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis $(WALKER).*.so
