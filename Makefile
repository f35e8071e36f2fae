# make demo    from nothing to a pore table, in demo/   (make demo VOLUME=path: on your own stack)
# make test    all tests but the long ones, in as many processes as there are cores, at most 8
# make test-long  the long ones, and property tests with examples that no run has tried before
# make gui     napari with the sample loaded
# make lint    style and types       make bench    benchmarks
# make docs    what in docs/ is made by the program: pictures and tables
# make site    the documentation as web pages, in build/site
# make bundle  the program in one folder, packed, in dist/: napari, Qt and PyTorch, no Python needed
# Each sets up all that it needs first: .venv, the package, system libraries.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# what is pinned, and, as far as it has sums, checked against them
PINNED := --no-require-hashes --constraint constraints.txt --constraint constraints-hashed.txt
XVFB := xvfb-run -a -s "-screen 0 1600x1000x24"
VOLUME ?=

.PHONY: install demo test test-long lint gui bench docs site bundle clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt constraints-hashed.txt scripts/system-libraries.sh
	PYTHON=$(PYTHON) scripts/system-libraries.sh
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=26.2"
	$(BIN)/python -m pip install --quiet $(PINNED) --group dev --editable ".[all]"
	touch $@

demo: $(INSTALLED)
	$(BIN)/hushpore demo $(if $(VOLUME),"$(VOLUME)") --output demo --overwrite

# compiled modules are kept, also where the environment forbids it: processes of tests share them
PYTEST := PYTHONDONTWRITEBYTECODE= QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest --numprocesses logical \
	--maxprocesses 8 --dist loadfile --durations 10

# a test that takes a quarter of an hour hangs: what its threads do is printed, and the run ends
test: $(INSTALLED)
	$(PYTEST) -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

test-long: $(INSTALLED)
	$(PYTEST) -m "long or hypothesis" --hypothesis-profile search

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

gui: $(INSTALLED)
	$(BIN)/hushpore gui --sample

bench: $(INSTALLED)
	$(BIN)/python -m pip install --quiet $(PINNED) --group bench
	$(BIN)/python -m benchmarks

docs: $(INSTALLED)
	$(BIN)/python docs/settings.py
	$(BIN)/python docs/measures.py
	$(BIN)/python docs/validation.py
	$(BIN)/python docs/licences.py
	$(XVFB) $(BIN)/python docs/film.py
	$(XVFB) $(BIN)/python docs/screenshots.py
	$(XVFB) $(BIN)/python docs/screenshots_reading.py
	$(XVFB) $(BIN)/python docs/screenshots_patches.py
	$(XVFB) $(BIN)/python docs/screenshots_phases.py
	$(XVFB) $(BIN)/python docs/screenshots_pores.py
	$(XVFB) $(BIN)/python docs/screenshots_results.py
	$(XVFB) $(BIN)/python docs/screenshots_walk.py

site: $(INSTALLED)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs build/site

bundle: $(INSTALLED)
	$(BIN)/python -m build --wheel
	PYTHON=$(PYTHON) PIP_CONSTRAINT=constraints.txt packaging/bundle.sh dist/hushpore-*.whl

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
