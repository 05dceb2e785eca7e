# `make` lists what there is. Each target sets up what it needs, in .venv, from the hashed locks in requirements/:
# a Python of 3.11 or later with venv, make and the package index are all that a fresh machine must have.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
# More workers than two cores: many tests wait for a lease or a process. worksteal evens out the few slow ones.
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal
UV_VERSION := 0.13.9

export DAGSTER_DISABLE_TELEMETRY := yes

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo dev test test-all lint format lambda lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.local-installed  ## show the whole thing on an embedded AWS; no account is needed
	@$(BIN)/python -m athena_assets.demo

# exec: make waits for that very process, which stops all the others when Ctrl-C or a signal ends it.
dev: $(VENV)/.dev-installed  ## run Dagster's UI and daemon on an embedded AWS with the sample data, until Ctrl-C
	@exec $(BIN)/python -m athena_assets.dev $(ARGS)

test: $(VENV)/.dev-installed  ## run the tests, less the long ones
	@$(PYTEST) -m "not long" $(ARGS)

test-all: $(VENV)/.dev-installed  ## run all tests; needs Chromium and PostgreSQL, and installs them on Debian
	@.ci/system-packages chromium postgresql
	@$(PYTEST) $(ARGS)

lint: $(VENV)/.dev-installed  ## check style, types and who imports whom
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'Not formatted; see what changes with "git diff" after "make format".'; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev-installed  ## format, and mend what ruff can mend
	@$(BIN)/ruff check --fix --quiet --exit-zero
	@$(BIN)/ruff format --quiet

lambda: $(VENV)/.local-installed  ## build the zip of the Lambda function: build/step_functions.zip
	@$(BIN)/python deploy/step_functions_zip.py build/step_functions.zip

# Keeps the versions that are locked where they still satisfy pyproject.toml. `make lock LOCK_ARGS=--upgrade` moves all
# of them, `LOCK_ARGS='--upgrade-package NAME'` one.
LOCK_ARGS ?=
COMPILE = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --system-certs \
    --custom-compile-command 'make lock' $(LOCK_ARGS)
lock: .venv-lock/.uv-$(UV_VERSION)  ## compile the lock files anew
	@$(COMPILE) requirements/build.in -o requirements/build.lock
	@$(COMPILE) pyproject.toml --extra dev -c requirements/build.lock -o requirements/dev.lock
	@$(COMPILE) pyproject.toml --extra local -c requirements/build.lock -c requirements/dev.lock -o requirements/local.lock

clean:  ## remove all that these targets made
	rm -rf $(VENV) .venv-lock .local build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	    .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- Set-up ----------------------------------------------------------------------------------------------------------

# $(PYTHON) if it is recent enough, else the first of these that is.
define FIND_PYTHON
for python in "$(PYTHON)" python3.13 python3.12 python3.11; do \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
done; \
if [ -z "$$python" ]; then \
    echo 'No Python of 3.11 or later found ($(PYTHON), python3.13, python3.12 and python3.11 were tried).' >&2; \
    echo 'Name one: make PYTHON=/path/to/python' >&2; exit 1; \
fi; \
"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
    echo "$$python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
}
endef

# The stamp is written last, so that a half-made environment is begun anew.
define CREATE_VENV
$(FIND_PYTHON); rm -rf $(dir $@) && "$$python" -m venv $(dir $@)
endef

$(VENV)/.created: requirements/build.lock
	@$(CREATE_VENV)
	@$(PIP) install --require-hashes -r requirements/build.lock
	@touch $@

# The locks are complete, so nothing is resolved (--no-deps); what has no wheel is built with the locked setuptools.
INSTALL = $(PIP) install --no-deps --no-build-isolation

$(VENV)/.local-installed: $(VENV)/.created requirements/local.lock pyproject.toml setup.cfg
	@echo 'Installing into $(VENV) (once; a minute or so) ...'
	@$(INSTALL) --require-hashes -r requirements/local.lock
	@$(INSTALL) --editable .
	@touch $@

# The dev lock holds all of the local one, so that it serves the demo too.
$(VENV)/.dev-installed: $(VENV)/.created requirements/dev.lock pyproject.toml setup.cfg
	@echo 'Installing into $(VENV) with the development tools (once; a minute or so) ...'
	@$(INSTALL) --require-hashes -r requirements/dev.lock
	@$(INSTALL) --editable .
	@touch $(VENV)/.local-installed $@

.venv-lock/.uv-$(UV_VERSION):
	@$(CREATE_VENV)
	@.venv-lock/bin/python -m pip --disable-pip-version-check --no-input -qq install uv==$(UV_VERSION)
	@touch $@
