# make demo: install and run the pipeline on the embedded sample. make test: the same, then the tests.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test install check sync clean .venv/servers .venv/validators

demo: .venv/installed
	@eopipe run --profile profiles/local

test: demo .venv/tests .venv/servers/installed .venv/validators/installed
	$(MAKE) check
	@# Trainings wait for each other much of the time, so they run beside the other tests.
	@pytest --durations=8 tests/distributed > .venv/distributed.log 2>&1 & trainings=$$!; \
	  pytest --durations=8 --ignore tests/distributed; others=$$?; \
	  wait $$trainings; code=$$?; cat .venv/distributed.log; [ $$code = 0 ] && [ $$others = 0 ]

check: .venv/tests
	ruff check . && ruff format --check .
	mypy
	lint-imports
	snakefmt --check Snakefile workflow
	snakemake --lint
	eopipe sync --check
	for tool in cwl/*.cwl; do cwltool --validate --quiet $$tool || exit 1; done

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

.venv/tests: .venv/installed
	pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

# Real servers for the tests: PostgreSQL, nginx, and a STAC API in an environment of its own. Without them their
# tests are skipped; with EOPIPE_NO_SKIP=1 a skip is a failure.
.venv/servers: .venv/servers/installed

.venv/servers/installed: tests/servers/requirements.txt
	@if [ "$$(id -u)" = 0 ] && ! { ls /usr/share/postgresql/*/extension/postgis.control && command -v nginx; } >/dev/null 2>&1; then \
	  apt-get update -qq && apt-get install -y -qq postgresql-15 postgresql-15-postgis-3 nginx || true; fi
	$(PYTHON) -m venv .venv/servers
	.venv/servers/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# The validators of EO Application Packages, in an environment of their own.
.venv/validators: .venv/validators/installed

.venv/validators/installed: tests/validators/requirements.txt
	$(PYTHON) -m venv .venv/validators
	.venv/validators/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# The files that follow from the stages: config schema, CWL tools, reference page.
sync: .venv/installed
	eopipe sync

clean:
	rm -rf results state .snakemake
