# make demo: install and run the pipeline on the embedded sample. make test: the same, then the tests of every promise of
# the README. make test-all: every test. make quick: format, lint, types and the tests that a change reaches.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(PYTHON) dev/install.py
export PATH := $(CURDIR)/$(BIN):$(PATH)
# For the time of the suites.
SHELL := /bin/bash
# Types of a new clone are checked with what an earlier one has left.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/eopipe-mypy
# Otherwise each process of the tests would compile eopipe again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo golden quick test slice test-all test-environments test-packages test-engines test-lowest test-newest durations install check sync clean
.PHONY: lock lock-check sbom audit
.PHONY: chaos
.PHONY: docs gallery .venv/site .venv/servers .venv/validators .venv/engines .venv/libraries slurm-up slurm-down demo-slurm

demo: .venv/installed
	@eopipe run --profile profiles/local

# Format, types, imports, derived files, and the tests that a change reaches, nearest first.
quick: .venv/tests
	@python -m dev.quick

# With the number of a slice also its exhaustive tests, as each run of CI does.
SLICE := none
test: demo test-environments
	@EOPIPE_DEMO=$(CURDIR)/results python -m dev.suites --exhaustive $(SLICE)

# The digests of the demo's outputs, after a REVISION rose; of a new run, or outputs of earlier code would be among them.
golden: clean
	@$(MAKE) --no-print-directory demo
	@python -m dev.golden

# The last run of CI had the slice that had waited longest: the first commit of a push.
slice:
	@$(PYTHON) tests/slices.py --ran

test-all: SLICE := all
test-all: test

# Every test, its duration and the modules of its processes written to tests/durations.json.
durations: test-environments
	@python -m dev.suites --exhaustive all --record

# Runs of five projects by turns that are disturbed at random, one after the other: `make chaos SEEDS=50`.
SEEDS ?= 50

chaos: .venv/tests
	@PYTHONPATH=tests python -m chaos --seeds $(SEEDS)

# The sample under four engines of CWL; alone it measures their times too.
test-engines: .venv/tests .venv/engines
	@pytest tests/engines_cwl

check: .venv/tests
	ruff check . && ruff format --check .
	mypy
	lint-imports
	snakefmt --check Snakefile workflow
	snakemake --lint
	python -m dev.sync --check
	python -m dev.validate_cwl
	python -m tests.slices --check

install: .venv/installed

# Before the environments inside of it, which jobs of make create at the same time.
.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv
	@# For dev/install.py, which takes pip where there is none.
	-@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target .venv/uv uv==0.13.9

.venv/installed: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	@# With cwltool and the executor of Slurm, which README uses next.
	$(INSTALL) $(BIN)/python --constraint constraints.txt --editable '.[cwl,slurm]'
	@touch $@

.venv/tests: .venv/installed
	$(INSTALL) $(BIN)/python --constraint constraints.txt --editable '.[cwl,slurm,test]'
	@touch $@

# What the tests need beside the package, each in an environment of its own, but for the engines of CWL, which dev/suites.py
# makes when a run has their tests. Tests that lack a program are skipped, and say so; with EOPIPE_NO_SKIP=1 a skip is a
# failure.
test-environments: .venv/tests .venv/servers .venv/validators .venv/libraries .venv/site

# Debian's packages for the tests of real servers and of a real Slurm; for root, and only when it is asked for.
DEBIAN := slurmctld slurmd slurm-client slurmdbd munge mariadb-server mariadb-client iproute2 \
  postgresql postgresql-15-postgis-3 nginx prometheus
test-packages:
	@if dpkg --status $(DEBIAN) > /dev/null 2>&1; then echo "Slurm, MariaDB, PostgreSQL, nginx and Prometheus are installed."; \
	elif [ "$$(id -u)" != 0 ]; then echo "make test-packages installs $(DEBIAN): run it as root." >&2; exit 1; \
	else echo "Installing $(DEBIAN)"; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends $(DEBIAN); fi

# A STAC API and its database client.
.venv/servers: .venv/servers/installed

.venv/servers/installed: tests/servers/requirements.txt | .venv/pyvenv.cfg
	$(PYTHON) -m venv .venv/servers
	$(INSTALL) .venv/servers/bin/python --requirement $<
	@touch $@

# A real Slurm of four nodes on this machine, for root: to try the profile, and for the tests.
# Without the packages, or not as root, slurm-up says what it lacks.
slurm-up:
	@$(PYTHON) tests/cluster/slurm.py up

slurm-down:
	@$(PYTHON) tests/cluster/slurm.py down

demo-slurm: .venv/installed slurm-up
	@# Only this run queries the cluster, so frequent queries are harmless.
	@eopipe run --profile slurm --logger rich --slurm-init-seconds-before-status-checks 3; code=$$?; $(MAKE) --no-print-directory slurm-down; exit $$code

# The validators of EO Application Packages, in an environment of their own.
.venv/validators: .venv/validators/installed

.venv/validators/installed: tests/validators/requirements.txt | .venv/pyvenv.cfg
	$(PYTHON) -m venv .venv/validators
	$(INSTALL) .venv/validators/bin/python --requirement $<
	@touch $@

# The documentation as a site in site/: nothing is loaded from elsewhere, and every warning is an error.
docs: .venv/site
	@NO_MKDOCS_2_WARNING=1 .venv/site/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

# docs/gallery.md and its pictures, from a run of each example (less than an hour).
gallery: .venv/tests
	@python -m dev.gallery

.venv/site: .venv/site/installed

.venv/site/installed: dev/site-requirements.txt | .venv/pyvenv.cfg
	$(PYTHON) -m venv .venv/site
	$(INSTALL) .venv/site/bin/python --requirement $<
	@touch $@

# Libraries of models that the tests train, beside the torch of the tests.
.venv/libraries: .venv/libraries/installed

.venv/libraries/installed: tests/libraries/requirements.txt | .venv/installed
	$(INSTALL) $(BIN)/python --no-deps --upgrade --target .venv/libraries --requirement $<
	@touch $@

# Other engines of CWL than cwltool, each in an environment of its own.
.venv/engines: .venv/engines/installed

.venv/engines/installed: tests/engines_cwl/toil.txt tests/engines_cwl/streamflow.txt | .venv/pyvenv.cfg
	@for file in $^; do \
	  environment=.venv/engines/$$(basename $$file .txt); \
	  $(PYTHON) -m venv $$environment && $(INSTALL) $$environment/bin/python --requirement $$file || exit 1; \
	done
	@touch $@

# With the lowest versions that pyproject.toml allows, and with the newest: the built wheel from init to the report, and
# the quick tests, which are the checkout's. Types are checked against the pinned versions only.
test-lowest: REQUIREMENTS := --constraint constraints-lowest.txt
test-newest: REQUIREMENTS := torch==2.13.0
test-lowest: EXTRAS := test
test-newest: EXTRAS := slurm,test
test-lowest test-newest: ENVIRONMENT = $(CURDIR)/.venv/$(@:test-%=%)
test-lowest test-newest: | .venv/pyvenv.cfg
	@rm -rf $(ENVIRONMENT) && $(PYTHON) -m venv $(ENVIRONMENT)
	@# In a clone, or files of an earlier build would be in the wheel.
	@git clone --quiet . $(ENVIRONMENT)/source
	@$(ENVIRONMENT)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(ENVIRONMENT)/wheel $(ENVIRONMENT)/source
	@$(INSTALL) $(ENVIRONMENT)/bin/python $(REQUIREMENTS) "$$(ls $(ENVIRONMENT)/wheel/*.whl)[$(EXTRAS)]"
	@$(ENVIRONMENT)/bin/python dev/wheel_journey.py
	@$(INSTALL) $(ENVIRONMENT)/bin/python --no-deps --editable .
	@EOPIPE_NO_SKIP= PATH="$(ENVIRONMENT)/bin:$$PATH" $(ENVIRONMENT)/bin/python -m dev.quick --package

# The files that follow from the stages: config schema, CWL tools, reference page.
sync: .venv/installed
	python -m dev.sync

# For a release, each with a package index: hashes of all packages (locks/), the SBOM (eopipe.cdx.json), and known
# vulnerabilities of the locked versions.
lock sbom audit: .venv/tests
	@python -m dev.supply_chain $@

# pip compares what it would download with the hashes; nothing is installed.
lock-check: .venv/tests
	@pip install --quiet --dry-run --ignore-installed --require-hashes --requirement locks/requirements.lock --requirement locks/torch-cpu.lock
	@echo "Every file that pip would install has a hash of locks/."

clean:
	rm -rf results state .snakemake
