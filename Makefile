# The commands of developers; `make` alone lists them.
PYTHON ?= python3
SCALE ?= 1
PAIRS ?= 6
SUITE ?= all
STAGE ?= dev
STATES ?= 10000000
SEED ?= 0
MINUTES ?= 10
INPUTS ?= 1000000
BROKERS ?= 1
LEDGER ?= dynamodb
KILLS ?= 0
# Processes that share the tests of a suite. More than cores: each starts its own servers, and many tests wait.
PROCESSES ?= 3
BIN := .venv/bin
STAMP := .venv/.installed
DEPS := build/layers/deps.json
ARCHIVE := build/spark/aarch64/archive.json
CLASSES := build/jvm/spark.jsa
LIBRARY := $(shell find layers/core/python/extentflow jobs -type f -not -path '*/__pycache__/*')
CDK := node_modules/.bin/cdk
# Each suite writes its results to build/test/, and has a cache of its own because two suites run at once.
PYTEST = $(BIN)/pytest -q --numprocesses $(PROCESSES) --junitxml=build/test/$@.xml -o cache_dir=.pytest_cache/$@ --dist
# Unit tests need the CPU while tests on servers wait. Where make can, the output of each suite stays together.
TOGETHER = --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# Markers that `make test` deselects (pyproject.toml) and `make test-all` runs.
LEFT_OUT := $(shell sed -nE 's/^ +"-m=not \((.*)\)",.*/\1/p' pyproject.toml)
SHELL := /bin/bash
# Tests start processes by the hundred, and each would compile again what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-events demo-spark-stream demo-onprem demo-lake test test-all rest rest-servers rest-others soak lint unit golden integration exhaustive chaos fuzz infra layers spark-archive sbom synth deploy bench bench-smoke bench-record docs lock clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# Printed for `make setup` only, not for each target that needs it.
NEXT = echo 'next: `make demo` delivers sample data on this machine; for your own, `source $(BIN)/activate` and README.md'

setup: $(STAMP) ## Create .venv with every pinned, hash-checked requirement
	@$(if $(filter setup,$(MAKECMDGOALS)),$(NEXT))

# Every tenth package that pip collects, then what takes long without a word.
PROGRESS = /^Collecting / { if (++n % 10 == 0) print "  " n " of " all " packages collected"; fflush() } \
	/^Installing collected/ { print "  unpacking them"; fflush() }

$(STAMP): requirements/dev.txt pyproject.toml local/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "extentflow needs Python 3.11 or later; set PYTHON=/path/to/python3")'
	@echo "installing the requirements into .venv; the first time that takes minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@set -o pipefail; $(BIN)/python -m pip install --no-color --progress-bar off --disable-pip-version-check --require-hashes -r requirements/dev.txt | awk -v all="$$(grep -c '^[a-z].*==' requirements/dev.txt)" '$(PROGRESS)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./local
	@touch $(STAMP)

demo: setup ## Start the stack, stream TPC-H data through Spark into Kafka, count every record, compare 2,501 in full (SCALE=1)
	@$(BIN)/python -m demo --scale $(SCALE)

demo-events: setup ## Uploads through the event path: deliver, fail, fix, replay, verify every record (SCALE=1)
	@$(BIN)/python -m demo.events --scale $(SCALE)

demo-spark-stream: setup ## Uploads through a streaming query on a Spark cluster that loses a machine (SCALE=1)
	@$(BIN)/python -m demo.spark_stream --scale $(SCALE)

demo-onprem: setup ## Without AWS: receiver, PostgreSQL, a Spark cluster that loses a machine (SCALE=1)
	@$(BIN)/python -m demo.onprem --scale $(SCALE)

demo-lake: setup ## An object through Kafka into an Iceberg table, as columns and as rows, compared by DuckDB (SCALE=1)
	@$(BIN)/python -m demo.lake --scale $(SCALE)

test: setup ## Lint, types, import contracts, unit, laws, infra, integration; eight minutes on two cores
	@started=$$SECONDS; \
	$(MAKE) --no-print-directory lint && \
	echo "two suites at a time; each prints its output when it ends" && \
	$(MAKE) --no-print-directory $(TOGETHER) integration unit infra; code=$$?; \
	echo "make test: $$([ $$code = 0 ] && echo passed || echo FAILED) after $$((SECONDS - started)) s"; exit $$code

test-all: test rest ## `test`, then what it leaves out (archives, attacks, chaos, clusters, fuzzing, outages, long tests, variants)

lint: setup ## Ruff, mypy --strict, import contracts, length of sentences
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python -m tools.sentences

# They do not wait: a third process would only collect 17,000 tests once more.
unit: PROCESSES = 2
unit: setup ## Tests without network: unit tests, laws
	@$(PYTEST) load tests/unit tests/laws

golden: setup ## Rewrite tests/golden after a change of wording; read the diff
	@$(BIN)/pytest -q -p no:randomly --golden-write $$(grep -rlw golden tests --include='test_*.py')

integration: setup ## Tests on a real broker, S3 server and DynamoDB Local
	@$(PYTEST) loadfile --no-loadscope-reorder tests/integration

rest: ## Only what `test` leaves out, about twenty minutes
	@$(MAKE) --no-print-directory $(TOGETHER) rest-servers rest-others

# Two suites, because each of them takes as long as those of `test` together.
rest-servers: AT = tests/integration
rest-others: AT = tests --ignore=tests/integration
rest-servers rest-others: setup $(DEPS) $(ARCHIVE) $(CLASSES)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PYTEST) loadfile --no-loadscope-reorder -m "($(LEFT_OUT)) and not soak" $(AT)

soak: setup $(CLASSES) ## The tests that take longest, each beside a shorter one that `test-all` runs; about an hour
	@$(PYTEST) loadfile --no-loadscope-reorder -m soak tests

# Spark's classes, parsed: each of the many JVMs of tests needs half the CPU time to start.
$(CLASSES): tests/support/quick_java.py $(STAMP)
	@echo "writing the archive of Spark's classes; that takes half a minute"
	@$(BIN)/python -m tests.support.quick_java $(@D) >/dev/null

exhaustive: setup ## Explore STATES=10000000 states of the protocol with its implementation, SEED=0 (LEDGER=sqlite|postgresql)
	@$(BIN)/python -m tests.support.exhaustive --states $(STATES) --seed $(SEED) --ledger $(LEDGER:dynamodb=memory)

chaos: setup ## Break everything at random and compare every record (MINUTES=10 SEED=n BROKERS=1 LEDGER=sqlite|postgresql KILLS=n LANES=columnar)
	@$(BIN)/python -m tests.faults --minutes $(MINUTES) --brokers $(BROKERS) --ledger $(LEDGER) --kills $(KILLS) $(if $(LANES),--lanes $(LANES)) $(if $(filter-out file,$(origin SEED)),--seed $(SEED))

fuzz: setup ## Try INPUTS=1000000 damaged and hostile inputs of every kind, or DECODES=n of each format (SEED=n)
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS) $(if $(DECODES),--decodes $(DECODES)) $(if $(filter-out file,$(origin SEED)),--seed $(SEED))

# Each process starts Node.js and its library, 14 s of CPU time.
infra: PROCESSES = 2
infra: setup ## Tests of the deployed stack: assertions, cdk-nag, cfn-lint, cfn-guard
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PYTEST) loadfile tests/infra

layers: $(DEPS) ## Build the layer of imported packages for Lambda on arm64 (needs the network)

$(DEPS): requirements/lambda.txt infra/recipes/lambda_layer.py infra/recipes/wheels.py | $(STAMP)
	@$(BIN)/python -m infra.recipes.lambda_layer

spark-archive: $(ARCHIVE) ## Build the archive of Spark jobs for EMR Serverless on arm64 (needs the network)

$(ARCHIVE): requirements/emr.txt infra/recipes/spark_archive.py infra/recipes/wheels.py $(LIBRARY) | $(STAMP)
	@$(BIN)/python -m infra.recipes.spark_archive

sbom: setup ## List what is deployed with licences, as CycloneDX in build/sbom
	@$(BIN)/python -m infra.recipes.bill

synth: setup ## Write the CloudFormation template to build/cdk.out (STAGE=dev)
	@PATH="$(CURDIR)/$(BIN):$$PATH" CDK_CONTEXT_JSON='{"stage":"$(STAGE)"}' $(BIN)/python app.py

deploy: setup $(DEPS) $(ARCHIVE) $(CDK) ## Deploy a stage of infra/stages.py with your AWS credentials (STAGE=dev)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(CDK) deploy --context stage=$(STAGE)

$(CDK): package-lock.json | $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --silent && touch $@

bench: setup ## Throughput and memory against baselines, in half an hour (SCALE=1 PAIRS=6); SUITE=name for one case
	@$(BIN)/python -m bench --suite $(SUITE) --scale $(SCALE) --pairs $(PAIRS)

bench-smoke: setup ## A few ratios at a small scale against the recorded ones, in three minutes
	@$(BIN)/python -m bench.smoke

bench-record: setup ## Record the results of `bench` and `bench-smoke`, and write docs/performance.md, docs/cost.md and the page of cases (SUITE=name)
	@$(BIN)/python -m bench.report --record --suite $(SUITE)

docs: setup ## Write the generated references
	@$(BIN)/python -m extentflow.config docs/configuration.md docs/migrate.md

lock: setup ## Pin the requirements again, with hashes
	@$(BIN)/uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --emit-find-links --no-header --python-version 3.11 requirements/dev.in -o requirements/dev.txt
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --emit-find-links --no-header --python-version 3.13 --python-platform aarch64-manylinux_2_28 requirements/lambda.in -o requirements/lambda.txt
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --emit-find-links --no-header --python-version 3.11 --python-platform aarch64-manylinux_2_28 requirements/emr.in -o requirements/emr.txt
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --emit-find-links --no-header --python-version 3.12 requirements/image.in -o requirements/image.txt
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --emit-find-links --no-header --python-version 3.12 requirements/build.in -o requirements/build.txt

clean: ## Stop the stack and remove everything generated, caches of components apart
	@if [ -x $(BIN)/extentflow ]; then $(BIN)/extentflow down; fi
	rm -rf .venv var build dist node_modules *.egg-info layers/core/python/*.egg-info local/*.egg-info extentflow.zip .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
