# On a fresh machine, `make demo` and `make test` each install everything that they need.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)

.PHONY: demo test test-all check shape compare schema bench chaos install image clean

demo: $(STAMP)
	$(BIN)/objectaware demo $(ARGS)

# Two processes: while one waits for another process to start, the other continues. The tests of a file stay together.
# If one of the two dies, the run ends. A replacement would
# make xdist wait forever for the tests that the dead process began.
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

# Counts of how the package is built. ARGS=--static leaves out the counts that need commands to run.
shape: $(STAMP)
	$(BIN)/python tools/shape.py $(ARGS)

# Run small examples of everything at two commits and compare them exactly: make compare BEFORE=main [ARGS=...].
compare: $(STAMP)
	$(BIN)/python tools/compare_commits.py $(BEFORE) $(ARGS)

# Write the fields that --help lists. A test compares them with the configuration models.
schema: $(STAMP)
	$(BIN)/python -c "from objectaware.commands.fields import write_schema; write_schema()"

# Each benchmark writes its CSV. If one misses its requirement, the others still run.
BENCHMARKS := augmentation decoding training_step pretrain_overhead contracam_cost contracam_peers crf_throughput \
	mask_measures linear_evaluation localization_scale driver_memory floors planner

bench: $(STAMP)
	status=0; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py $(ARGS) || status=1; done; \
	$(BIN)/python benchmarks/page.py; exit $$status

# Inject faults, and report what must hold and what was seen. No fault takes longer than the limit of its test.
chaos: $(STAMP)
	$(BIN)/python -m pytest -m chaos --chaos-report benchmarks/results/chaos.csv $(ARGS)

install: $(STAMP)

# Docker if its daemon runs, otherwise buildah. ARGS goes to either.
ENGINE = $(shell docker info >/dev/null 2>&1 && echo docker || echo buildah)
IMAGE ?= objectaware:$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' platform/objectaware/__init__.py)
BASE_IMAGE ?= debian:bookworm-slim

image:
	$(ENGINE) build --file docker/Dockerfile --build-arg BASE_IMAGE=$(BASE_IMAGE) --tag $(IMAGE) $(ARGS) .

# Install in steps that print their names: minutes without output look like a hang, and pip's own output fills the
# screen.
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
