# `make demo` and `make test` need nothing but Python 3.11+; all else goes into .venv.
PYTHON ?= python3

VENV := .venv/bin/python
RUN = JAVA_HOME="$$(.venv/bin/tidegate doctor --java-home)" PATH="$(CURDIR)/.venv/bin:$$PATH" PYTHONDONTWRITEBYTECODE=
AT_A_TIME := --dist loadfile --no-loadscope-reorder -n
QUICK := -m 'not (slow or spark)' tests/*.py tests/properties tests/unit --ignore=tests/unit/cli --ignore=tests/unit/web
TIMES := artifacts/tests.xml
COVERAGE := artifacts/coverage.json
MINUTES ?= 60
VERSION ?= 3.5.9

.PHONY: help install browser archive demo demo-ui test check test-spark prove coverage test-times lint format bench doctor services services-stop constraints clean

help:
	@echo 'make demo           count words, fail, and recover from a checkpoint'
	@echo 'make demo-ui        run a job that never ends and fails now and then, to look at in a browser'
	@echo 'make test           run all tests'
	@echo 'make check          run the quick tests'
	@echo 'make test-spark     run the tests of Spark on another version of it: VERSION=3.5.9'
	@echo 'make prove          run the long proofs: MINUTES=60, SEED=that of the last time'
	@echo 'make coverage       what the quick tests execute, by package'
	@echo 'make test-times     list the slowest tests of the last make test'
	@echo 'make lint           run ruff and mypy'
	@echo 'make format         format the code and sort the imports'
	@echo 'make bench          compare the speed with other engines'
	@echo 'make doctor         say what this machine has and what it lacks'
	@echo 'make services       start the real servers that tests and examples use'
	@echo 'make services-stop  stop them'
	@echo 'make constraints    pin the newest versions of all packages'
	@echo 'make clean          remove .venv and all caches'

install:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo 'There is no $(PYTHON) here. Install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.12 demo' >&2; \
	  exit 1; }
	@$(PYTHON) scripts/bootstrap.py

demo: install
	@$(RUN) $(VENV) examples/word_count.py

demo-ui: install
	@$(RUN) $(VENV) examples/shop.py

browser:
	@command -v chromium >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo 'There is no chromium here (Debian: apt install chromium): tests of the dashboard are skipped.'

archive: install
	@$(RUN) $(VENV) scripts/class_archive.py

test: install browser archive
	@$(RUN) $(VENV) -m pytest $(AT_A_TIME) 4 --junitxml=$(TIMES)

check: install
	@TIDEGATE_EFFORT=0.2 $(RUN) $(VENV) -m pytest $(AT_A_TIME) 3 $(QUICK) --ignore=tests/unit/driver

test-spark: install
	@$(VENV) scripts/spark_venv.py $(VERSION)
	@$(RUN) .venv-spark-$(VERSION)/bin/python -m pytest -m spark $(TESTS)

prove: install
	@$(RUN) $(VENV) -m tests.prove --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

coverage: install
	@rm -f .coverage*
	@TIDEGATE_EFFORT=0.2 $(RUN) $(VENV) -m coverage run -m pytest -q $(AT_A_TIME) 3 $(QUICK)
	@mkdir -p artifacts
	@$(VENV) -m coverage combine -q
	@$(VENV) -m coverage json -q -o $(COVERAGE)
	@$(VENV) scripts/coverage_by_package.py $(COVERAGE)

test-times:
	@$(VENV) scripts/test_times.py $(TIMES)

lint: install
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .
	@$(VENV) -m mypy

format: install
	@$(VENV) -m ruff check --fix-only .
	@$(VENV) -m ruff format .

bench: install
	@$(VENV) -m pip install --quiet -c constraints.txt -e '.[dev,bench]'
	@$(RUN) $(VENV) -m benchmarks

doctor: install
	@.venv/bin/tidegate doctor

services: install
	@$(VENV) -m services start

services-stop: install
	@$(VENV) -m services stop

constraints:
	$(PYTHON) -m venv --clear .venv-pins
	.venv-pins/bin/python -m pip install --quiet '.[bench,dev,java]'
	.venv-pins/bin/python -m pip freeze --exclude tidegate > constraints.txt
	rm -rf .venv-pins

clean:
	rm -rf .venv .venv-pins .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
