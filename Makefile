# Start with `make demo` or `make test`. Every install uses constraints.txt.
.DELETE_ON_ERROR:
.PHONY: demo test quick slow core-only test-lowest test-integrations lint docs docs-serve wheel study bench fuzz locked lock clean

VENV := .venv
BIN := $(VENV)/bin
CORE := .venv-core
INTEGRATIONS := .venv-integrations
LOWEST := .venv-lowest
WHEEL := .venv-wheel
PYTHON ?= python3
PIP_INSTALL = -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
STAMPS := pyproject.toml constraints.txt
LOCKED := .venv-locked
HASHES := constraints-hashed.txt
# PyTorch's own wheel for Linux (x86-64, Python 3.11) without CUDA. The registry's builds for Linux
# need CUDA, and pip would prefer them if their hashes were listed.
TORCH_FOR_CPU := 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
NAME ?= simulations
SECONDS ?= 600
# Percent of the lines that the tests of `make quick` run; raise it when the tests reach more.
COVERAGE := 97
SEED ?= 0
# Tests that `make core-only` leaves out, since `make quick` has run them: the numbers are the same
# with and without extras. None of them asks what is installed. All other files run in both.
SAME_WITH_EXTRAS := band crossfitted dependence dependence_study empirical_studies evidence fast_predict \
  global_gate logits memorised mlp_gate monitor_study shrunk_gate stacking \
  standardized_outputs theory tree_gate trees

# The build packages are pinned, too: pip reads the first variable, or the second since 25.3.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
# Tests start many processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

demo: $(VENV)/.demo  ## the paper's motivating example: a table, a verdict, two figures
	$(BIN)/localma demo --out demo

test: lint docs quick core-only  ## all checks that a change must pass

lint: $(VENV)/.dev  ## formatting, lint rules, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.dev  ## the pages under build/docs; a warning is an error
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

docs-serve: docs  ## the same pages at http://127.0.0.1:8000, until Ctrl-C
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

quick: $(VENV)/.dev $(VENV)/.browser  ## tests, contracts, doctests, the README's code, the layers
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow" --cov --cov-report= --cov-fail-under=$(COVERAGE)

slow: $(VENV)/.dev  ## the long tests
	$(BIN)/pytest -m slow

core-only: $(CORE)/.test  ## tests without any extra; with SAME_WITH_EXTRAS= all of them
	$(CORE)/bin/pytest -n 2 --dist loadgroup -m "not slow" --no-header \
	  $(SAME_WITH_EXTRAS:%=--ignore=tests/test_%.py)

test-lowest: $(LOWEST)/.test  ## the core tests with the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/pytest -n 2 --dist loadgroup -m "not slow" --no-header \
	  -W ignore::pytest.PytestRemovedIn10Warning  # from scikit-learn 1.6

wheel: $(VENV)/.demo  ## build the distributions, install the wheel in a new environment, run the demo
	rm -rf dist $(WHEEL)
	$(BIN)/python $(PIP_INSTALL) hatchling
	$(BIN)/python -m hatchling build
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python $(PIP_INSTALL) "$$(echo $(CURDIR)/dist/*.whl)[cli,plot]"
	$(BIN)/python -m zipfile -l dist/*.whl | cut -d/ -f1-2 | sort -u
	cd $(WHEEL) && bin/localma demo --out demo

test-integrations: $(INTEGRATIONS)/.test  ## real models of LightGBM, XGBoost, CatBoost, statsmodels; a Ray cluster
	$(INTEGRATIONS)/bin/pytest -n 2 --dist loadgroup tests/integrations

study: $(VENV)/.dev  ## make study NAME=simulations
	$(BIN)/python -m studies run $(NAME)

bench: $(VENV)/.dev  ## speed and memory, compared with other ways to do the same
	$(BIN)/python -m benchmarks peers jax deskit deslib
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.dev  ## damaged and hostile model files: make fuzz SECONDS=600 SEED=0; failures go to build/fuzz
	$(BIN)/python -m tests.fuzz.hostile
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) --seed $(SEED) --out build/fuzz

locked: $(LOCKED)/.locked  ## the same packages, each file checked by its hash, in .venv-locked
	$(LOCKED)/bin/python -m pip check

lock: constraints.txt  ## write the hashes of the packages in constraints.txt; needs uv
	sed '/^# Only for/,$$d' constraints.txt | uv pip compile - --no-deps --generate-hashes \
	  --no-header --no-annotate --python-version 3.11.9 --quiet --output-file $(HASHES)
	sed -i -e '1i # Written by `make lock`: what constraints.txt pins, by hash. `make locked` installs it.' \
	  -e '/^torch==/,/^torchvision==/{/^ /d}' \
	  -e 's/^torch==.*/&\n    --hash=sha256:$(TORCH_FOR_CPU)/' $(HASHES)

clean:
	rm -rf $(VENV) $(CORE) $(INTEGRATIONS) $(LOWEST) $(WHEEL) $(LOCKED) .venv-peers-* demo build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis

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

# The report is tested in a real browser. If none can be installed, these tests are skipped with a
# message.
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

# The lower bounds as pins. Only the test tools use constraints.txt, which contradicts these pins.
$(LOWEST)/.test: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python $(PIP_INSTALL) pytest pytest-xdist hypothesis hatchling editables
	$(PYTHON) -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]).replace(">=", "=="))' > $(LOWEST)/lowest.txt
	env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT $(LOWEST)/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c $(LOWEST)/lowest.txt -r $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# No build isolation: it would download the build packages without checking their hashes.
$(LOCKED)/.locked: pyproject.toml $(HASHES)
	$(PYTHON) -m venv --clear $(LOCKED)
	env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT $(LOCKED)/bin/python -m pip install --quiet \
	  --disable-pip-version-check --require-hashes -r $(HASHES)
	$(LOCKED)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation -e .
	touch $@ $(LOCKED)/.dev $(LOCKED)/.demo
