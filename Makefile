# Seriatim: every task starts here. `make` alone lists them. ARGS="..." is handed through to what a target runs.

.DEFAULT_GOAL := help
.PHONY: help setup run test soak check simulate golden mutate bench engines faults deploy-files spec docs clean

VENV  := .venv
BIN   := $(VENV)/bin
SERVE := $(VENV)/.serve-ready# what `seriatim serve` imports, and nothing else
READY := $(VENV)/.ready# the tools of development on top of it
PIP   := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS  ?=

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## Create .venv with the pinned tools and this package (instant when nothing changed)

run: $(SERVE) ## Serve on this machine, e.g. make run ARGS="--port 9000"
	@exec $(BIN)/seriatim serve --env dev $(ARGS)

test: $(READY) ## Run the tests, e.g. make test ARGS="-k pipeline -n 0"
	@# The real engines are downloaded once. What cannot be had here is named at the end of the run; in CI it fails.
	@$(BIN)/python -m tools.engines install || true
	@$(BIN)/pytest $(ARGS)

soak: $(READY) ## Run the tests that repeat themselves in their long form: more examples, seeds, rounds and faults
	@$(BIN)/python -m tools.engines install || true
	@TEST_SOAK=on $(BIN)/pytest --timeout 1800 $$(grep -rl --include='*.py' 'tests\.support\.soak' tests | grep -v '/faults/') tests/system/faults $(ARGS)

check: $(READY) ## Check formatting, lint, types, import rules and schemas of events
	@echo '== format: ruff format --check' && $(BIN)/ruff format --check .
	@echo '== lint: ruff check'            && $(BIN)/ruff check .
	@echo '== types: mypy --strict'        && $(BIN)/mypy
	@echo '== imports: lint-imports'       && $(BIN)/lint-imports --no-logo
	@echo '== events: schemas check'       && $(BIN)/seriatim schemas check

simulate: $(READY) ## Run 100,000 simulated deployments with faults, e.g. make simulate ARGS="--help"
	@$(BIN)/seriatim simulate --seeds 1..100000 $(ARGS)

golden: $(READY) ## Write the digests of the golden traces again, after an intended change of behaviour
	@$(BIN)/python tests/simulation/test_replay.py
	@$(BIN)/python -m tests.simulation.test_mutants

mutate: $(READY) ## Run random mutants of a package, and show those that no test notices, e.g. make mutate ARGS="durability"
	@$(BIN)/python -m tools.mutate $(ARGS)

bench: $(READY) ## Measure speed beside bare baselines, e.g. make bench ARGS="--quick" or ARGS="distributed"
	@$(BIN)/python -m bench.run $(ARGS)

faults: $(READY) ## Break everything once under load, and write what was measured into docs/faults.md
	@$(BIN)/python -m tools.engines install
	@$(BIN)/python -m tools.faults_table $(ARGS)

engines: $(READY) ## Start real Redis, Kafka and DynamoDB Local until Ctrl-C, or only download them: ARGS="install"
	@exec $(BIN)/python -m tools.engines $(ARGS)

deploy-files: $(READY) ## Write Terraform, policies and the sizing figures again, from the code
	@$(BIN)/python -m tools.deploy

spec: $(READY) ## Write the tables of invariants, mutants and metrics in docs, from the code
	@$(BIN)/python -m tools.invariants_table
	@$(BIN)/python -m tools.mutants_table
	@$(BIN)/python -m tools.metrics_page

docs: $(SERVE) ## List the documentation
	@$(BIN)/python -c "$$LIST_DOCS"

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src tests bench tools -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Each stamp is touched last, so an interrupted setup is resumed. hatchling, which makes the package known to .venv, is
# pinned in dev.txt.
$(SERVE): requirements/server.txt pyproject.toml
	@python=; for each in python3.11 python3; do \
	    if $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$each; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Seriatim needs Python 3.11 or newer; found: $$(python3 --version 2>&1 || echo none)" >&2; exit 1; \
	fi; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    echo "== setup: $(VENV) with $$($$python --version)"; $$python -m venv --clear $(VENV); \
	fi
	@echo '== setup: pinned packages for serving'
	@$(PIP) -r requirements/server.txt -c requirements/dev.txt hatchling
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(SERVE) requirements/dev.txt
	@echo '== setup: pinned tools of development'
	@$(PIP) -r requirements/dev.txt
	@touch $@

define LIST_DOCS
from pathlib import Path
pages = sorted(Path("docs").rglob("*.md"))
print("The documentation is in docs/:" if pages else "docs/ holds no pages yet.")
for page in pages:
    lines = page.read_text(encoding="utf-8").splitlines()
    heading = next((line.lstrip("# ") for line in lines if line.startswith("#")), "")
    print(f"  {page!s:<40} {heading}")
endef
export LIST_DOCS
