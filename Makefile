# Two commands: `make demo` and `make test`. Every install goes through constraints.txt.
.DELETE_ON_ERROR:
.PHONY: demo test quick slow core-only test-integrations lint docs study bench clean

VENV := .venv
BIN := $(VENV)/bin
CORE := .venv-core
INTEGRATIONS := .venv-integrations
PYTHON ?= python3
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt
STAMPS := pyproject.toml constraints.txt
NAME ?= simulations

demo: $(VENV)/.demo  ## the paper's motivating example: a table, a verdict, two pictures
	$(BIN)/localma demo --out demo

test: lint docs quick core-only  ## everything that a change must pass

lint: $(VENV)/.dev  ## formatting, lint rules, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.dev  ## the pages under build/docs; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

quick: $(VENV)/.dev $(VENV)/.browser  ## tests, contracts, doctests, the README's code, the layers
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

slow: $(VENV)/.dev  ## the tests too long for every change
	$(BIN)/pytest -m slow

core-only: $(CORE)/.test  ## the same tests where no extra is installed
	$(CORE)/bin/pytest -n 2 --dist loadgroup -m "not slow" --no-header

test-integrations: $(INTEGRATIONS)/.test  ## real models of LightGBM, XGBoost, CatBoost, statsmodels
	$(INTEGRATIONS)/bin/pytest -n 2 tests/integrations

study: $(VENV)/.dev  ## make study NAME=simulations
	$(BIN)/python -m studies run $(NAME)

bench: $(VENV)/.dev  ## speed and memory beside what a user would write instead
	$(BIN)/python -m benchmarks peers
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(CORE) $(INTEGRATIONS) .venv-peers-* demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(CORE)/bin/python:
	$(PYTHON) -m venv $(CORE)

$(INTEGRATIONS)/bin/python:
	$(PYTHON) -m venv $(INTEGRATIONS)

$(VENV)/.demo: $(VENV)/bin/python $(STAMPS)
	$(BIN)/python $(PIP_INSTALL) -e '.[cli,plot]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python $(STAMPS)
	$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.demo

# The report is tested in a real browser; where there is none and none can be installed, those
# tests say so and are skipped.
$(VENV)/.browser: | $(VENV)/bin/python
	@command -v chromedriver >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
	  >/dev/null 2>&1 || echo "no browser: tests of the report in one are skipped"
	touch $@

$(CORE)/.test: $(CORE)/bin/python $(STAMPS)
	$(CORE)/bin/python $(PIP_INSTALL) -e '.[test]'
	touch $@

$(INTEGRATIONS)/.test: $(INTEGRATIONS)/bin/python $(STAMPS)
	$(INTEGRATIONS)/bin/python $(PIP_INSTALL) -e '.[integrations]'
	touch $@
