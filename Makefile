# One word for each habit. `make help` lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
CHECKOV := .venv-checkov
# Node and npm come with the Python packages, so the system needs neither.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# torch warns about a package that NVRx 0.4.1 depends on; nothing for a user to act on.
export PYTHONWARNINGS := ignore:The pynvml package is deprecated

DEPLOYMENT ?= deployments/p5.yaml
REHEARSAL := out/rehearsal
# Processes that share the tests; tests/conftest.py says how, and sorts them itself.
WORKERS ?= $(shell nproc)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder
RUNS := unfaulted sync async pod in-job in-process

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

.PHONY: setup
setup: $(VENV)/.installed node_modules/.installed ## install everything into .venv and node_modules

$(VENV)/.installed: requirements.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' || \
	  { echo "steadfast: needs Python 3.11 or 3.12, found $$($(PYTHON) --version); set PYTHON=..."; exit 2; }
	@echo "Installing the Python packages into $(VENV); the first time takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	  -r requirements.txt -c requirements.lock 2>&1 | grep -E --line-buffered '^(Collecting|Installing|ERROR|Successfully)' | cut -c1-100; \
	  exit $${PIPESTATUS[0]}
	@touch $@

node_modules/.installed: package.json package-lock.json $(VENV)/.installed
	@echo "Installing the CDK command line into node_modules."
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: demo
demo: setup ## render everything, then rehearse training with faults on this computer
	@echo; echo "== 1/4  The cluster of deployments/p5.yaml, as CloudFormation (cdk.out/)"
	@CDK_VALIDATION=false node_modules/.bin/cdk synth --quiet -c deployment=deployments/p5.yaml --output cdk.out
	@ls cdk.out/*.template.json | sed 's/^/  /'
	@echo; echo "== 2/4  Its training Jobs, as Kubernetes manifests (dist/)"
	@$(BIN)/python -m workloads synth --deployment deployments/p5.yaml --out dist
	@echo; echo "== 3/4  The Jobs of deployments/rehearsal.yaml, run here as processes (about three minutes)"
	@$(BIN)/python -m workloads rehearse $(RUNS) --deployment deployments/rehearsal.yaml --out $(REHEARSAL) --fresh
	@echo; echo "== 4/4  What each way to save and to recover cost"
	@$(BIN)/python -m trainer.report $(REHEARSAL)
	@echo
	@echo "Wrote   cdk.out/                templates of the whole cluster"
	@echo "        dist/                   manifests of its runs"
	@echo "        $(REHEARSAL)/          events, checkpoints and logs of every run above"
	@echo "Next    edit deployments/rehearsal.yaml (faults.seed, say) and run"
	@echo "        $(BIN)/python -m workloads rehearse in-job --deployment deployments/rehearsal.yaml --out out/mine"

.PHONY: synth
synth: setup ## render templates and manifests of DEPLOYMENT=deployments/p5.yaml
	node_modules/.bin/cdk synth --quiet -c deployment=$(DEPLOYMENT) --output cdk.out
	$(BIN)/python -m workloads synth --deployment $(DEPLOYMENT) --out dist

.PHONY: doctor
doctor: setup ## ask AWS whether DEPLOYMENT=deployments/p5.yaml can work, or does
	$(BIN)/python -m infra.doctor --deployment $(DEPLOYMENT)

.PHONY: deploy
deploy: setup ## create or change the cluster of DEPLOYMENT=..., unless the doctor finds errors
	@# What a deploy may mend (nodes that are missing, say) must not forbid it: the phase before, alone.
	$(BIN)/python -m infra.doctor --deployment $(DEPLOYMENT) --phase before
	node_modules/.bin/cdk deploy --all -c deployment=$(DEPLOYMENT) --outputs-file cdk-outputs.json \
	  --require-approval never

.PHONY: down
down: setup ## delete all of DEPLOYMENT=..., in an order in which nothing hangs; asks first
	$(BIN)/python -m infra.teardown --deployment $(DEPLOYMENT)

.PHONY: test
test: setup check ## everything that a change must pass: style, types, structure, tests
	$(PYTEST)

.PHONY: test-slow
test-slow: setup $(CHECKOV)/.installed ## the tests that take minutes: CDK command line, checkov, mutations, crash points
	$(PYTEST) -m slow

.PHONY: test-all
test-all: setup $(CHECKOV)/.installed check ## both in one go, which takes less time than one after the other
	$(PYTEST) -m "slow or not slow"

$(CHECKOV)/.installed: requirements-checkov.txt requirements-checkov.lock $(VENV)/.installed
	@echo "Installing checkov into $(CHECKOV)."
	$(PYTHON) -m venv $(CHECKOV)
	$(CHECKOV)/bin/python -m pip install --disable-pip-version-check -q \
	  -r requirements-checkov.txt -c requirements-checkov.lock
	@touch $@

.PHONY: bench-synth
bench-synth: setup ## seconds that python app.py takes, for 2 and for 64 nodes
	$(BIN)/python -m tests.infra.bench_synth

.PHONY: bench-gpu
bench-gpu: setup ## on this computer's GPUs: what a save costs, beside NVRx's and PyTorch's; seconds to recover
	$(BIN)/python -m tests.trainer.bench_saves --preset llama-1b --out out/bench
	$(BIN)/python -m tests.trainer.bench_recovery --preset llama-1b --out out/bench-recovery --limit-seconds 1800

CHAOS_SEED ?= 1
CHAOS_PLANS ?= 100
.PHONY: chaos
chaos: setup ## random faults under every layer, each run exact: CHAOS_SEED=1 CHAOS_PLANS=100; goes on where it was
	@$(BIN)/python -m tests.chaos --seed $(CHAOS_SEED) --plans $(CHAOS_PLANS)

.PHONY: soak
soak: setup ## 50 restarts in process and 50 in job: does anything grow?
	@$(BIN)/python -m tests.soak

.PHONY: check
check: lint types ## style, types and the direction of imports

.PHONY: lint
lint: setup ## ruff and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

.PHONY: types
types: setup ## mypy --strict
	$(BIN)/mypy

.PHONY: golden
golden: setup ## rewrite the golden files; read the diff before you commit it
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/infra tests/workloads tests/trainer/test_report.py -m "not distributed"

.PHONY: schema
schema: setup ## rewrite deployments/schema.json, which editors complete from
	$(BIN)/python -m workloads schema --out deployments/schema.json

.PHONY: lock
lock: setup ## pin what the requirements bring along, as installed now
	$(BIN)/python -m pip freeze | sed -E 's/^torch==([0-9.]+).*/torch==\1/' > requirements.lock
	npm install --package-lock-only --no-audit --no-fund

.PHONY: lock-checkov
lock-checkov: $(CHECKOV)/.installed ## pin what checkov brings along, as installed now
	$(CHECKOV)/bin/python -m pip freeze > requirements-checkov.lock

NVRX ?= 0.7.0
.PHONY: test-nvrx
test-nvrx: setup .nvrx/$(NVRX)/.installed ## the multi-process tests on another NVRx: NVRX=0.7.0
	PYTHONPATH=$(CURDIR)/.nvrx/$(NVRX) $(BIN)/python -m pytest -m distributed tests/trainer tests/test_rehearsal.py

# The wheels of 0.6 and 0.7 ask for a newer C library than they use, so pip is told which
# platform to take them for. All that runs here is Python.
.nvrx/%/.installed:
	$(BIN)/python -m pip install --disable-pip-version-check -q --only-binary=:all: --no-deps \
	  --implementation cp --python-version 3.12 --abi cp312 --platform manylinux_2_39_x86_64 \
	  --target .nvrx/$* nvidia-resiliency-ext==$*
	$(BIN)/python -m pip install --disable-pip-version-check -q --target .nvrx/$* \
	  'grpcio>=1.76,<2' 'grpcio-tools>=1.76,<2' 'protobuf<7' httpx
	@touch $@

.PHONY: clean
clean: ## delete what was rendered and rehearsed; keeps .venv and node_modules
	rm -rf cdk.out dist out
