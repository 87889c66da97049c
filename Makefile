# Two commands do everything: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || echo python3)
BIN := .venv/bin

.PHONY: setup demo docs test test-all nightly lint bench faults agent science applications gpu audit screenshots cluster-test clean

setup: .venv/.ready

# With what packages are installed; .ci/run gives it another program, and pip more flags.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
		|| { echo "Python 3.11 or 3.12 is needed; give it as make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv .venv

.venv/.ready: pyproject.toml demo.lock | $(BIN)/python
	@echo "setting up .venv (a few minutes the first time)"
	@# vLLM for GPUs where there are any, for CPUs where pip finds the torch that it needs, otherwise no vLLM.
	@extras=dev; \
	if command -v nvidia-smi >/dev/null; then extras=dev,gpu; \
	elif $(BIN)/python -m pip install --quiet --dry-run --no-deps torch==2.13.0+cpu >/dev/null 2>&1; then extras=dev,cpu; fi; \
	$(INSTALL) -e ".[$$extras]"
	@$(BIN)/python tests/environment/cuda_builds_beside_cpu_torch.py
	@UV_CONSTRAINT= $(INSTALL) --no-deps --require-hashes -r demo.lock  # uv takes no constraints beside hashes
	@touch $@

demo: setup
	@$(BIN)/openmaia demo

# The documentation, into build/docs: executes the notebooks (a few minutes), then builds every page. Warnings are errors.
docs: setup
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python docs/site/notebooks.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "documentation: build/docs/index.html"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

# What `make test` does first. .ci/run runs the linters beside the tests: LINT=setup.
LINT ?= lint
# That share the tests among them.
PROCESSES ?= 2
# What `make test-all` runs. CI adds the tests of the cluster: "not nightly".
TESTS ?= not cluster and not nightly

# What protects a user from a wrong or a lost result. `make test-all` adds whole sweeps, faults of processes and nodes, and
# real engines; CI runs that. `make nightly` runs what is too long for CI: further faults, engines and measurements.
test: $(LINT)
	@$(BIN)/python -m tests.prepare
	$(BIN)/pytest -m "not cluster and not slow" -n $(PROCESSES) --dist loadfile --no-loadscope-reorder -rs

test-all: $(LINT)
	@$(BIN)/python -m tests.prepare
	$(BIN)/pytest -m "$(TESTS)" -n $(PROCESSES) --dist loadfile --no-loadscope-reorder -rs --durations=40

nightly: setup
	@$(BIN)/python -m tests.prepare
	$(BIN)/pytest -m "nightly and not cluster" -n 2 --dist loadfile --no-loadscope-reorder -rs
	$(BIN)/pytest tests/cluster -m "nightly and cluster" -rs

# By hand: minutes to hours, on a quiet machine. Commit the figures beside what made them.
# `make bench only=pool` runs one part.
bench: setup
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m measure.benchmarks $(if $(only),only=$(only))

# Kills parts of running sweeps at random moments: writes measure/faults/trials.csv and RESULTS.md. Hours; root for the full disk and the hosts.
faults: setup
	@$(BIN)/python -m measure.faults $(if $(only),only="$(only)") $(if $(times),times=$(times)) $(if $(again),again=$(again)) $(if $(minutes),minutes=$(minutes))

# Whether descriptions are true: writes science.json, in more than an hour on two cores. `make science only=real` runs one part.
science: setup
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m measure.science $(if $(only),only=$(only))

# A language model of 1.5 billion parameters plays the agent on this machine: fetches 1.1 GB and takes about an hour. Your own:
# make agent with="url=http://127.0.0.1:8000/v1 model=NAME sees=images". Writes measure/language_model/RESULTS.md.
agent: setup
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m measure.language_model $(with)

# What the applications find of what is known to be there: writes measure/applications/RESULTS.md.
applications: setup
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m measure.applications $(if $(only),only=$(only))

# The pictures of the report in docs/screenshots, from a run of the demo: a few minutes, and Chromium.
# `make screenshots run=runs/demo` takes a finished run.
screenshots: setup
	@$(BIN)/python -m tests.screenshots $(run)

# On a machine with a GPU: the whole program with tiny models (`measure/gpu/whole.py`, which a machine without a GPU rehearses),
# then large models at their full size with random weights (80 GB for all; tried on an H200; 34 GB of disk). Nothing is downloaded.
# Minutes. Figures go to build/gpu and to the folder in OUT; what was measured is in tests/gpu/RESULTS.md.
gpu: setup
	$(BIN)/python -m measure.gpu.whole out=build/gpu
	$(BIN)/pytest -m gpu

# Known vulnerabilities of the locked packages. Needs the network. A workflow runs it every week.
audit: setup
	@$(PYTHON) -m venv build/audit && build/audit/bin/pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3"
	@timeout 300 build/audit/bin/pip-audit --disable-pip --no-deps --require-hashes -r cluster/requirements.lock

# SLURM and hosts in network namespaces: root, and what .ci/run installs. What is missing is said, and its tests are skipped.
# Two files at once (`loadfile` would leave all of them to one process: tests/conftest.py).
WORKERS ?= 2
cluster-test: setup
	@$(BIN)/python -m tests.prepare
	$(BIN)/pytest tests/cluster -m "cluster and not nightly" -n $(WORKERS) --dist loadscope -rs --durations=0

clean:
	rm -rf .venv build runs exemplars/*/
