# `make` alone prints the verbs. On a machine with nothing but Python 3.11+ and make, `make demo`
# and `make test` do everything by themselves: the environment is made once, in .venv, from
# hash-locked requirements, and again only when those or pyproject.toml change.
#
#   PYTHON       the interpreter the environment is made with
#   ARGS         more arguments for up, demo, load and replay
#   PYTEST_ARGS  more arguments for the test verbs, such as `-k windows` or `--junitxml=FILE`

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
AUDIT := .venv-audit
# One stamp for what is done once: the locked packages to run, those to test, our own code.
RUN_PACKAGES := $(VENV)/.ready-run
DEV_PACKAGES := $(VENV)/.ready-dev
CODE := $(VENV)/.ready-code
RUN_READY := $(RUN_PACKAGES) $(CODE)
DEV_READY := $(DEV_PACKAGES) $(CODE)
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check install -qq
ARGS ?=
PYTEST_ARGS ?=
PYTHON ?=

# The first interpreter that is new enough and can make an environment. Each is started, not only
# looked up: a shim of a version manager is on the PATH also when no version stands behind it.
define find_python
found=""; \
for candidate in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	if "$$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then found="$$candidate"; break; fi; \
done; \
if [ -z "$$found" ]; then \
	echo "make: no Python 3.11 or newer that can make environments among: $(or $(PYTHON),python3.13 python3.12 python3.11 python3)" >&2; \
	echo "make: name one with 'make PYTHON=/path/to/python3'; on Debian and Ubuntu 'apt-get install python3-venv' brings what is missing" >&2; \
	exit 1; \
fi
endef

.PHONY: help
help: ## print these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(DEV_READY) ## make .venv with everything locked by hash; done once

$(RUN_PACKAGES): requirements/run.txt
	@$(find_python); echo "make: an environment in $(VENV) with $$("$$found" --version); a minute or two, once"; \
	"$$found" -m venv --clear $(VENV)
	@$(PIP_INSTALL) --require-hashes -r requirements/run.txt
	@touch $@

$(DEV_PACKAGES): requirements/dev.txt $(RUN_PACKAGES)
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

$(CODE): pyproject.toml $(RUN_PACKAGES)
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: fmt
fmt: $(DEV_READY) ## format, and mend what ruff can mend safely
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

.PHONY: check
check: $(DEV_READY) ## format, lint, types, floors, generated schemas: all but the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m fairlease_schemas.generate --check

.PHONY: test
test: $(DEV_READY) ## the tests that need nothing but Python; none is skipped
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long" --ignore=tests/peers $(PYTEST_ARGS)

# What tests/peers builds and starts: a C compiler for the fake NVML, strace to break a disk, what judges units and
# alerts, a browser for pages, and a Slurm with its database. Brought where we may bring it.
.PHONY: peers
peers:
	@if printf '#include <stdio.h>\n' | gcc -fsyntax-only -x c - 2>/dev/null && \
		command -v strace >/dev/null && command -v promtool >/dev/null && \
		command -v systemd-analyze >/dev/null && command -v openssl >/dev/null && \
		command -v slurmctld >/dev/null && command -v slurmdbd >/dev/null && command -v sshare >/dev/null && \
		command -v munged >/dev/null && command -v mariadbd >/dev/null && command -v chromium >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then \
		echo "make: test-peers needs gcc, the headers of the C library, strace, promtool, systemd, openssl, slurmctld, slurmdbd, sshare, munged, mariadbd and chromium; not root on Debian, so not installed here" >&2; \
		exit 1; \
	fi; \
	echo "make: installing gcc, libc6-dev, strace, prometheus, systemd, openssl, Slurm, munge, MariaDB and chromium for test-peers"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev strace prometheus systemd openssl \
		slurmctld slurmdbd slurm-client munge mariadb-server chromium >/dev/null

.PHONY: test-peers
test-peers: $(DEV_READY) peers ## the tests beside other systems; as root on Debian it installs what they need
	@$(BIN)/python -m pytest tests/peers $(PYTEST_ARGS); code=$$?; \
	if [ $$code -eq 5 ]; then echo "make: no test of tests/peers was selected; nothing to run"; \
	else exit $$code; fi

.PHONY: test-long
test-long: $(DEV_READY) ## the tests that take minutes; before an issue is closed
	$(BIN)/python -m pytest -n 2 --dist loadfile -m long $(PYTEST_ARGS)

.PHONY: demo
demo: $(RUN_READY) ## the whole system on this machine in under two minutes
	@$(BIN)/fairlease demo $(ARGS)

.PHONY: up
up: $(RUN_READY) ## start the bus, the services and an agent here, and keep them
	$(BIN)/fairlease up $(ARGS)

.PHONY: replay
replay: $(RUN_READY) ## re-decide a recorded log: make replay ARGS=FILE
	$(BIN)/fairlease replay $(ARGS)

.PHONY: load
load: $(DEV_READY) ## the load test of the whole chain, figures as JSON
	$(BIN)/python loadtests/run.py spine --json $(ARGS)

.PHONY: docs
docs: $(RUN_READY) ## write the schemas, the event catalogue and what infra/ has of the code anew
	$(BIN)/python -m fairlease_schemas.generate
	$(BIN)/python infra/generate.py

# In an environment of its own, so that what asks decides nothing about what is tested.
$(AUDIT)/.ready: requirements/audit.txt
	@$(find_python); "$$found" -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip --disable-pip-version-check install -qq --require-hashes -r requirements/audit.txt
	@touch $@

.PHONY: audit-deps
audit-deps: $(AUDIT)/.ready ## ask whether the locked packages have known holes; needs the network
	@$(AUDIT)/bin/python requirements/audit.py

.PHONY: sbom
sbom: $(RUN_READY) ## write build/sbom.json, the bill of materials of what is locked (CycloneDX)
	@$(BIN)/python requirements/sbom.py

.PHONY: lock
lock: ## resolve requirements/*.txt anew with Python 3.11; UPGRADE=1 takes the newest
	@PYTHON="$(or $(PYTHON),python3.11)" sh requirements/lock.sh
