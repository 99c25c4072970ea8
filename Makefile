# make demo: install and run the pipeline on the embedded sample. make test: the same, then the tests.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# For the time of each suite.
SHELL := /bin/bash
export TIMEFORMAT := took %0R s
# Processes that share two cores shall not spin while they wait for each other.
export OMP_WAIT_POLICY := passive
# Else each process of the tests would compile eopipe anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-lane-1 test-lane-2 test-distributed test-cluster test-engines test-engines_cwl test-workflow test-contract test-others install check sync clean
.PHONY: .venv/cluster-alone.log .venv/cluster-beside.log .venv/cluster-whole.log
.PHONY: .venv/servers .venv/validators .venv/engines slurm-packages slurm-up slurm-down demo-slurm

demo: .venv/installed
	@eopipe run --profile profiles/local

# Two lanes, a core for each; the engines need Slurm long after the cluster's suite has done with it.
test: demo .venv/tests slurm-packages
	time $(MAKE) --no-print-directory --jobs 2 .venv/servers .venv/validators .venv/engines
	@$(MAKE) --no-print-directory --jobs 2 --keep-going test-lane-1 test-lane-2

test-lane-1: SUITES := cluster distributed contract
test-lane-2: SUITES := others workflow engines_cwl
test-lane-1 test-lane-2:
	@code=0; for suite in $(SUITES); do $(MAKE) --no-print-directory test-$$suite || code=$$?; done; exit $$code

test-contract: check
test-distributed test-engines_cwl test-workflow test-contract:
	@time pytest --durations=8 tests/$(@:test-%=%) > .venv/$@.log 2>&1; code=$$?; cat .venv/$@.log; exit $$code

# Much of it is waiting: two parts at a time, each with a Slurm of its own, where this machine allows that.
test-cluster: PARTS := $(shell tests/cluster/apart true 2> /dev/null && echo alone beside || echo whole)
test-cluster:
	@time $(MAKE) --no-print-directory --jobs 2 --keep-going $(PARTS:%=.venv/cluster-%.log); code=$$?; cat $(PARTS:%=.venv/cluster-%.log); exit $$code

.venv/cluster-alone.log:
	@tests/cluster/apart pytest --durations=8 -m alone tests/cluster > $@ 2>&1
.venv/cluster-beside.log:
	@pytest --durations=8 -m 'not alone' tests/cluster > $@ 2>&1
.venv/cluster-whole.log:
	@pytest --durations=8 tests/cluster > $@ 2>&1

# These give way to the suites beside them, whose time is told.
test-others: SUITES := distributed cluster engines_cwl workflow contract
test-others:
	@time nice --adjustment 15 pytest --durations=8 $(SUITES:%=--ignore tests/%)

# The sample under four engines; alone it tells their times too.
test-engines: .venv/tests .venv/engines slurm-packages test-engines_cwl

check: .venv/tests
	ruff check . && ruff format --check .
	mypy
	lint-imports
	snakefmt --check Snakefile workflow
	snakemake --lint
	python -m dev.sync --check
	ls cwl/*.cwl | xargs --max-procs 2 --max-args 1 cwltool --validate --quiet

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

.venv/tests: .venv/installed
	pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

.venv/slurm: .venv/installed
	pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[slurm]'
	@touch $@

# Real servers for the tests: PostgreSQL, nginx, and a STAC API in an environment of its own. Without them their
# tests are skipped; with EOPIPE_NO_SKIP=1 a skip is a failure.
.venv/servers: .venv/servers/installed

.venv/servers/installed: tests/servers/requirements.txt
	@if [ "$$(id -u)" = 0 ] && ! { ls /usr/share/postgresql/*/extension/postgis.control && command -v nginx; } >/dev/null 2>&1; then \
	  apt-get update -qq && apt-get install -y -qq postgresql-15 postgresql-15-postgis-3 nginx || true; fi
	$(PYTHON) -m venv .venv/servers
	.venv/servers/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement $<
	@touch $@

# A real Slurm of four nodes on this machine, for root: to try the profile, and for the tests.
# Without the packages, or not as root, the tests of the cluster are skipped, and slurm-up says what it lacks.
slurm-packages:
	@for tool in slurmctld slurmd sbatch munged slurmdbd mariadbd ip; do command -v $$tool >/dev/null || lacks=1; done; \
	if [ "$$lacks" ] && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends \
	    slurmctld slurmd slurm-client munge slurmdbd mariadb-server mariadb-client iproute2 || true; fi

slurm-up: slurm-packages
	@$(PYTHON) tests/cluster/slurm.py up

slurm-down:
	@$(PYTHON) tests/cluster/slurm.py down

demo-slurm: .venv/slurm slurm-up
	@# Nobody else asks this cluster, so it may be asked often.
	@eopipe run --profile slurm --logger rich --slurm-init-seconds-before-status-checks 3; code=$$?; $(MAKE) --no-print-directory slurm-down; exit $$code

# The validators of EO Application Packages, in an environment of their own.
.venv/validators: .venv/validators/installed

.venv/validators/installed: tests/validators/requirements.txt
	$(PYTHON) -m venv .venv/validators
	.venv/validators/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement $<
	@touch $@

# Other engines of CWL than cwltool, each in an environment of its own.
.venv/engines: .venv/engines/installed

.venv/engines/installed: tests/engines_cwl/toil.txt tests/engines_cwl/streamflow.txt
	@for file in $^; do \
	  room=.venv/engines/$$(basename $$file .txt); \
	  $(PYTHON) -m venv $$room && $$room/bin/pip install --quiet --disable-pip-version-check --requirement $$file || exit 1; \
	done
	@touch $@

# The files that follow from the stages: config schema, CWL tools, reference page.
sync: .venv/installed
	python -m dev.sync

clean:
	rm -rf results state .snakemake
