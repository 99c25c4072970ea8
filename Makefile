# make demo: install and run the pipeline on the embedded sample. make test: the same, then the tests.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test install check sync clean

demo: .venv/installed
	@eopipe run --profile profiles/local

test: demo .venv/tests
	$(MAKE) check
	pytest

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

# The files that follow from the stages: config schema, CWL tools, reference page.
sync: .venv/installed
	eopipe sync

clean:
	rm -rf results state .snakemake
