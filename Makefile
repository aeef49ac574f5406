# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Modules are compiled when they are first imported: of a quarter of a gigabyte of sources most never are.
PIP    := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
OURS   := $(PIP) --no-build-isolation

# Packages of their own, with the extras that tests need.
PLUGINS := --editable plugins/batches --editable 'plugins/export[onnx]' --editable 'plugins/loggers[mlflow,tensorboard]' \
	--editable plugins/nvflare --editable plugins/published --editable 'plugins/serve[http,otel]' --editable plugins/sweep

# Compiled modules are kept, whatever the environment says: pytest rewrites the asserts of hundreds of files, and every
# process that a test starts would compile the package again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest

.PHONY: demo test quick lint types layers unit failed browser docs package clean

demo: $(VENV)/installed
	$(BIN)/cutlayer demo

# Two at a time: the tests, which take longest, and the type checker, which takes one core for a minute, come first.
test:
	$(MAKE) --jobs 2 $(VENV)/installed-dev browser
	$(MAKE) --jobs 2 unit types lint layers

# What to run after every edit: no test that trains a whole job.
quick: $(VENV)/installed-dev lint
	$(PYTEST) -q --forks 2 -m "not slow"

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/mypy

layers: $(VENV)/installed-dev
	$(BIN)/lint-imports

# The longest files first, in the order of tests/conftest.py. Five processes for two cores: two of them run the files
# that fork (FORKING), which wait much of the time, and the others wait now and then.
unit: $(VENV)/installed-dev
	$(PYTEST) --forks 5

# The tests that failed last time, one at a time.
failed: $(VENV)/installed-dev
	$(PYTEST) --last-failed --last-failed-no-failures none

# The report is looked at in a real browser where Debian's chromium can be installed; elsewhere that test says why not.
# The one without windows, which later releases have as a package of its own, is smaller and takes half the time.
APT := apt-get install -qq -y --no-install-recommends
browser:
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    { $(APT) chromium-headless-shell >/dev/null 2>&1 || $(APT) chromium >/dev/null; }; } || true

# Wheels and sdists, the wheel of the core installed and run in an environment of its own, and the list of what was installed with it.
package: $(VENV)/installed-dev
	rm -rf dist
	$(BIN)/hatchling build -d dist
	for plugin in plugins/*; do (cd $$plugin && ../../$(BIN)/hatchling build -d ../../dist) || exit 1; done
	$(PYTHON) -m venv dist/clean
	dist/clean/bin/pip install --quiet --constraint constraints.txt torch
	dist/clean/bin/pip install --quiet --constraint constraints.txt packaging dist/cutlayer-[0-9]*.whl
	cd dist && clean/bin/cutlayer demo --copy clean/demo && clean/bin/cutlayer check clean/demo/job.yaml
	dist/clean/bin/python -m tools.licences --out dist/cutlayer.cdx.json

docs: $(VENV)/installed-docs
	$(BIN)/python -m mkdocs build --strict

# torch first and by the constraint: any other way downloads gigabytes of CUDA packages. Before that a pip that finds 170
# packages in half the time, and after it what builds ours, which else each of them would have installed for itself.
$(VENV)/prepared: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) 'pip>=25'
	$(PIP) torch hatchling hatch-vcs editables
	@touch $@

$(VENV)/installed: $(VENV)/prepared
	$(OURS) --editable .
	@touch $@

# Not after `installed`, which it includes.
$(VENV)/installed-dev: $(VENV)/prepared $(wildcard plugins/*/pyproject.toml)
	$(OURS) --editable '.[dev]' $(PLUGINS)
	@touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/installed-dev
	$(OURS) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) site dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
