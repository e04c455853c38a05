# make demo and make test do all of their own set-up: Python 3.11+ and Java 17+ are all they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Without bytecode on disk every process compiles what it imports: three seconds for each worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo cluster-demo test mutants chaos soak lint bench lab clean

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/ready ## a virtual environment with everything pinned

# The demo needs no more than the extra of its name; where everything is installed, that will do.
DEMO_READY := $(if $(wildcard $(VENV)/ready),$(VENV)/ready,$(VENV)/ready-demo)

$(VENV)/ready: EXTRA := dev
$(VENV)/ready: COMPILE := $(BIN)/python -m semistream.advice.kernels
# The demo compiles the kernels while it writes its tables.
$(VENV)/ready-demo: EXTRA := demo
$(VENV)/ready $(VENV)/ready-demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "semistream needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1)."; \
	  echo "Install one and run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) src/semistream/cli/java.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[$(EXTRA)]'
	$(COMPILE)
	@touch $@

demo: $(DEMO_READY) ## a sales stream enriched on Spark, proved exact, compared with plain Spark
	@$(PYTHON) src/semistream/cli/java.py
	$(BIN)/semistream demo $(ARGS)

cluster-demo: setup ## a Spark cluster on loopback, R on a path and on S3, a worker killed, the result proved
	@$(PYTHON) src/semistream/cli/java.py
	$(BIN)/python -m tests.spark.cluster_demo

lint: setup ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## lint, then every test
	@$(PYTHON) src/semistream/cli/java.py
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

mutants: setup ## break the product on purpose, one edit at a time: the tests must notice; some minutes
	$(BIN)/python -m tests.mutants $(ARGS)

chaos: setup ## faults at random moments for MINUTES=10 from SEED=1, the sink checked after each
	@$(PYTHON) src/semistream/cli/java.py
	$(BIN)/python -m tests.faults.chaos --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(ARGS)

soak: setup ## a query for MINUTES=30, its memory, files, disk and backlog drawn and judged: soak-out/soak.png
	@$(PYTHON) src/semistream/cli/java.py
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),30) $(ARGS)

bench: setup ## ours and its peers on the same data, answers checked; appends to benchmarks/results.ndjson
	@$(PYTHON) src/semistream/cli/java.py
	$(BIN)/python -m benchmarks $(ARGS)

lab: setup ## the papers' figures in miniature, with verdicts, on one page: lab-out/index.html
	$(BIN)/semistream lab run --jobs 2 $(ARGS)

clean: ## remove what was made
	rm -rf $(VENV) demo-out bench-out lab-out soak-out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
