# Two targets do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)

.PHONY: demo test test-all check shape compare schema bench chaos install image clean

demo: $(STAMP)
	$(BIN)/objectaware demo $(ARGS)

# Two at a time: while one waits for a process to start, the other goes on. The tests of a file stay together.
# Where one of the two dies, the run ends: put in its place, xdist waits for ever for what it had begun.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: $(STAMP) check
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(STAMP)
	$(PYTEST) -m slow --durations=25 $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# How the package is built, in figures; ARGS=--static leaves out those for which commands are run.
shape: $(STAMP)
	$(BIN)/python tools/shape.py $(ARGS)

# Small examples of everything at two commits, compared exactly: make compare BEFORE=main [ARGS=...].
compare: $(STAMP)
	$(BIN)/python tools/compare_commits.py $(BEFORE) $(ARGS)

# What --help lists of recipes; a test compares it with the models of configuration.
schema: $(STAMP)
	$(BIN)/python -c "from objectaware.commands.fields import write_schema; write_schema()"

# Each writes its CSV; one that misses what is asked of it does not keep the others from running.
BENCHMARKS := augmentation decoding training_step pretrain_overhead contracam_cost contracam_peers crf_throughput \
	mask_measures linear_evaluation localization_scale driver_memory floors planner

bench: $(STAMP)
	status=0; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py $(ARGS) || status=1; done; \
	$(BIN)/python benchmarks/page.py; exit $$status

# Faults on purpose: what must hold, what was seen. Longer than a test's own limit none of them takes.
chaos: $(STAMP)
	$(BIN)/python -m pytest -m chaos --chaos-report benchmarks/results/chaos.csv $(ARGS)

install: $(STAMP)

# Docker where its daemon runs, else buildah; ARGS goes to either.
ENGINE = $(shell docker info >/dev/null 2>&1 && echo docker || echo buildah)
IMAGE ?= objectaware:$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' platform/objectaware/__init__.py)
BASE_IMAGE ?= debian:bookworm-slim

image:
	$(ENGINE) build --file docker/Dockerfile --build-arg BASE_IMAGE=$(BASE_IMAGE) --tag $(IMAGE) $(ARGS) .

# In steps that say what they are: minutes without a word look like a hang, and all that pip says fills the screen.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

$(STAMP):
	@echo "Installing $$(grep -c == constraints.txt) packages into $(VENV): 7 GB of disk and 2 to 10 minutes, mostly downloads."
	@echo "1 of 4: a virtual environment of $(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "2 of 4: PyTorch, the largest part"
	@$(PIP) torch torchvision
	@echo "3 of 4: Ray and MLflow"
	@$(PIP) "ray[default,data,train,tune]" mlflow
	@echo "4 of 4: objectaware, and what it needs besides"
	@$(PIP) --editable ".[test,bench]"
	@rm -f $(VENV)/.installed-*
	@touch $@
	@echo "Installed. To have objectaware on the path of this shell: . $(BIN)/activate"

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
