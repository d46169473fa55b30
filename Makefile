# Two commands: make demo, make test. Everything else is a part of them; make help lists it.
.DEFAULT_GOAL := help
.SHELLFLAGS := -eu -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

UV_VERSION := 0.13.8
PY := .venv/bin/python
RUN := $(PY) -m
PYTEST := $(RUN) pytest
JOBS ?= 2
FAST := tests --ignore=tests/e2e --ignore=tests/cluster

.PHONY: help demo demo-cluster test test-fast lint format bench bench-full screenshots setup clean \
	python pages messages packages

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

demo: python pages messages ## the whole portal with a simulated lab, at http://127.0.0.1:8000
	@$(PY) manage.py demo

demo-cluster: setup ## the whole portal on a real Kubernetes cluster of its own (root)
	@$(RUN) tests.cluster demo

test: setup ## all tests: pure, database, contract, browser, real cluster
	@$(PYTEST) $(FAST) -q -n $(JOBS)
	@$(PYTEST) tests/e2e -q
	@$(PYTEST) tests/cluster -q -rs

test-fast: python pages messages ## the tests without browser and cluster
	@$(PYTEST) $(FAST) -q -n $(JOBS)

lint: python ## format, lint, types, layers, migrations, templates: checks only
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@.venv/bin/lint-imports
	@$(RUN) mypy
	@$(PY) manage.py makemigrations --check --dry-run
	@.venv/bin/djade --target-version 6.1 --check $$(find templates -name '*.html')

format: python ## formats Python and templates in place
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .
	@.venv/bin/djade --target-version 6.1 $$(find templates -name '*.html')

bench: python ## the benchmarks' short form; ONLY=B1 for one of them
	@$(RUN) bench $(if $(ONLY),--only $(ONLY))

bench-full: python ## all benchmarks at full length
	@$(RUN) bench --full $(if $(ONLY),--only $(ONLY))

screenshots: setup ## every page, both widths, themes and languages, into screenshots/
	@$(RUN) tests.e2e.screenshots

setup: python pages messages packages ## everything that demo and test need; quick the second time

clean: ## forgets the demo's data and everything that was built
	@rm -rf var node_modules static/vendor .venv .tools screenshots bench/out

# --- The parts of setup, each done once

python: .venv/.ready

.venv/.ready: pyproject.toml uv.lock .tools/bin/uv
	@echo "Python packages …"
	@.tools/bin/uv sync --locked --quiet --group bench --python "$$(scripts/find_python)"
	@touch $@

.tools/bin/uv:
	@echo "uv …"
	@rm -rf .tools
	@"$$(scripts/find_python)" -m venv .tools
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

pages: $(if $(wildcard package.json),node_modules/.ready)

node_modules/.ready: package.json package-lock.json $(wildcard scripts/vendor/*)
	@scripts/check_node
	@echo "Style sheets and scripts …"
	@npm ci --silent --no-audit --no-fund
	@npm run --silent vendor
	@touch $@

messages: python
	@$(PY) scripts/compile_messages.py

packages:
	@scripts/install_packages || test $$? = 3
