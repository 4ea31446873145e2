# `make demo` runs the whole system; `make test` runs all checks. Both need Rust and Python 3.10, and
# install the rest or name it in one line.
#
# One target folder, always the whole workspace: other combinations build the large dependencies again.
# `make test` uses the profile "checks", which compiles faster; all else the release.

PROFILE ?= release
CARGO_FLAGS := --locked --profile $(PROFILE) --workspace
BUILT := target/$(PROFILE)
VENV := .venv
PYTHON := $(VENV)/bin/python
step = @printf '\n== %s\n' "$(1)"

# The checks are linted while they compile (tools/build-checks): whatever else compiles with their profile
# uses the same compiler, and shares its results.
ifeq ($(PROFILE),checks)
export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/tools/lint-rustc
endif

.PHONY: help demo test-clouds emulators clouds clouds-inbox wheel install uninstall test quick quick-tests quick-py-tests test-frameworks test-long lint build bench model whole-jobs damage fuzz clean mutations mutation-seeds \
	system-build system-python system-all system-optional fmt ruff mypy clippy checks-build clippy-warnings rust-tests rust-docs python-ready py-tests py-site-tests units scripts \
	image image-check release check-release package-check docs generated-docs manifests live-systemd live-kubernetes paper paper-quick
.NOTPARALLEL:

help:
	@echo 'make demo       the whole system on real text, with crashes and a proof'
	@echo 'make test       all checks, cheap ones first (as .ci/run does)'
	@echo 'make quick      format, lint, unit tests of changed crates, Python tests without daemons: two minutes'
	@echo 'make test-long  also the long tests: many runs with random crashes'
	@echo 'make test-frameworks  the tests with real PyTorch, transformers, accelerate, Lightning, JAX, Ray and Spark, which are installed first (6.5 GB)'
	@echo 'make lint       format, ruff, mypy, clippy, shellcheck and actionlint only'
	@echo 'make build      the release binaries, in target/release'
	@echo 'make wheel      the Python wheel with the programs, in target/wheels'
	@echo 'make install    programs, units, configurations and docs below $$(DESTDIR)$$(PREFIX)'
	@echo 'make uninstall  removes them, except configurations'
	@echo 'make release    wheel, Debian package, image, list of parts, licences and checksums, in dist'
	@echo 'make check-release  installs the wheel and the package of dist in a clean Debian, by sudo'
	@echo 'make docs       the documentation as a book, with checked links, in target/book'
	@echo 'make generated-docs  option tables and synopses of the documentation, from config/ and --help'
	@echo 'make manifests  output of the Kubernetes overlays, rules of the operator, templates of the Helm chart: needs kubectl'
	@echo 'make image      the container image, with docker, podman or buildah'
	@echo 'make whole-jobs RUNS=20  whole jobs with kills of every process, each proved at the end'
	@echo 'make damage     damage each object of a real stream and each read of one: half an hour'
	@echo 'make live-systemd  a booted Debian with the daemons as units, by the commands of deploy/README.md: five minutes, by sudo'
	@echo 'make live-kubernetes  a Kubernetes cluster with the daemons as pods, by the commands of deploy/README.md: by sudo, twenty minutes the first time'
	@echo 'make test-clouds  gs:// and az:// with emulators, which it installs by Go and npm; RUNS=10 demos with kills on each'
	@echo 'make fuzz       every decoder under a coverage-guided fuzzer, FUZZ_RUNS=100000 or FUZZ_SECONDS=30 each: minutes'
	@echo 'make bench      the benchmarks, compared with the committed figures: minutes, on a machine that does nothing else'
	@echo 'make paper      the experiments of the paper into target/paper: hours; make paper-quick takes ten minutes'
	@echo 'make model      explore all orders of events of the protocol: minutes'
	@echo 'DEMO_ARGS=... is passed to batchweave demo, for example DEMO_ARGS="--steps 1000"'

# Compiles one program, which contains all that the demo starts. STORE=gs and STORE=az take emulators of these clouds.
STORE :=
demo_cloud := $(filter gs az,$(STORE))
demo: system-build system-python $(VENV)/numpy $(if $(demo_cloud),emulators)
	$(call step,build of the demo's program)
	cargo build --locked --profile demo -p batchweave-all $(if $(demo_cloud),--features clouds)
	$(if $(demo_cloud),tools/emulators run $(EMULATORS) env) PYTHONPATH=$(CURDIR)/python/src target/demo/batchweave-all demo --ranks-in python --python $(CURDIR)/$(PYTHON) \
		$(if $(STORE),--store $(STORE)$(if $(demo_cloud),://batchweave/demo)) $(DEMO_ARGS)

# Each step runs, even after a failure; a summary follows.
# STEP:NEEDED waits for others; the rest starts in this order, three at a time.
STEPS := fmt checks-build python-ready ruff:python-ready mypy:python-ready clippy-warnings:checks-build \
	rust-tests:checks-build py-tests:checks-build,python-ready rust-docs:checks-build \
	py-site-tests:checks-build,python-ready units:checks-build scripts image-check:checks-build clouds:checks-build,python-ready
test: system-all system-optional
	@MAKE="$(MAKE)" PROFILE=checks tools/run-steps $(RUN_STEPS) $(STEPS)

# Of what changed since BASE, by default the commit where this branch left origin/main.
quick: system-build system-python
	@MAKE="$(MAKE)" PROFILE=checks tools/run-steps --name quick quick-tests python-ready fmt ruff:python-ready mypy:python-ready quick-py-tests:python-ready

quick-tests:
	$(call step,lint and unit tests of changed crates)
	tools/quick-tests $(PROFILE)

lint: system-build system-python system-optional fmt ruff mypy clippy scripts

test-long: system-all build $(VENV)/ready
	$(call step,long tests)
	BATCHWEAVE_LONG=1 cargo test $(CARGO_FLAGS) --no-fail-fast -- --include-ignored
	BATCHWEAVE_LONG=1 $(MAKE) py-tests py-site-tests
	$(MAKE) fuzz

# BATCHWEAVE_SEED=N repeats a run; RUNS=20 makes 20, with consecutive seeds.
RUNS := 1
whole-jobs: build
	$(call step,whole jobs: kills of everything the store down and late)
	BATCHWEAVE_RUNS=$(RUNS) cargo test $(CARGO_FLAGS) --test storm -- --ignored --nocapture whole_jobs

# TRIALS=N limits the trials; BATCHWEAVE_SEED=N repeats a run.
damage: build
	$(call step,each object of a real stream damaged and each read of one a lie)
	$(if $(TRIALS),BATCHWEAVE_TRIALS=$(TRIALS)) cargo test $(CARGO_FLAGS) --test storm -- --ignored --nocapture damage::

# RUNS=10 runs the demo, with its kills and its proof, ten times on each cloud.
test-clouds: build emulators
	$(call step,conformance of gs:// and az:// with emulators and the demo with kills on each)
	tools/emulators run $(EMULATORS) env BATCHWEAVE_TEST_STORES="gs://batchweave/c az://batchweave/c" \
		cargo test $(CARGO_FLAGS) --test conformance -- --nocapture stores_named
	@for run in $$(seq $(RUNS)); do for cloud in gs az; do \
		echo "run $$run of $(RUNS) on $$cloud://"; \
		tools/emulators run $(EMULATORS) $(BUILT)/batchweave demo --store $$cloud://batchweave/demo --kills 2 || exit 1; \
	done; done

EMULATORS := target/emulators
emulators:
	@tools/system-packages clouds
	tools/emulators install $(EMULATORS)

# Beside the other tests, where the emulators are installed: conformance, and writers of inboxes.
clouds: $(VENV)/ready
	$(call step,conformance of gs:// and az:// and an inbox in az:// with emulators)
	@tools/emulators run $(EMULATORS) env BATCHWEAVE_TEST_STORES="gs://batchweave/c az://batchweave/c" \
		sh -ec 'tools/run-tests $(PROFILE) "store conformance" -- stores_named; $(MAKE) --no-print-directory clouds-inbox' || [ $$? = 69 ]

clouds-inbox:
	$(call pytest,--rootdir python -c python/pyproject.toml python/tests/clouds_inbox.py)

# In a separate folder, since all code there is instrumented. FUZZ_TARGETS='record fold' runs these
# only, FUZZ_SECONDS=0 removes the time limit; `tools/fuzz --keep` adds found inputs to tests/fuzz/inputs.
FUZZ_RUNS := 100000
FUZZ_SECONDS := 30
fuzz:
	$(call step,decoders under a fuzzer)
	@tools/system-packages build fuzz
	FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz $(FUZZ_RUNS) $(FUZZ_TARGETS)

model: build
	$(BUILT)/batchweave-model --all

build: system-build
	$(call step,release build)
	cargo build $(CARGO_FLAGS)

# The wheel brings all programs in one file; it needs no Rust where it is installed.
wheel: system-build system-python $(VENV)/maturin
	$(call step,wheel)
	tools/wheel $(PYTHON) target/wheels $(PROFILE)
	@ls -sh target/wheels/*.whl

PREFIX ?= /usr/local
DESTDIR ?=
BINARIES ?= $(BUILT)

# Run `make build` first. Existing configurations are kept.
install:
	tools/install "$(BINARIES)" "$(DESTDIR)" "$(PREFIX)"

# Keeps configurations.
uninstall:
	tools/install --remove "$(DESTDIR)" "$(PREFIX)"

system-build:
	@tools/system-packages build

system-python:
	@tools/system-packages python

system-all:
	@tools/system-packages build python systemd watching

# Steps that lack these say so; they fail under CI only.
system-optional:
	@tools/system-packages scripts packages || [ "$${CI:-}" != true ]

fmt:
	$(call step,format)
	cargo fmt --all --check

clippy:
	$(call step,clippy)
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings

# Everything once: programs, tests and lint. `make checks-build PROFILE=checks` as `make test` does it.
checks-build: system-build
	$(call step,build of programs and tests)
	tools/build-checks $(PROFILE)

clippy-warnings:
	$(call step,warnings of the build)
	tools/build-checks $(PROFILE) --warnings

rust-tests:
	$(call step,Rust tests)
	tools/run-tests $(PROFILE)

# They are part of the Rust tests; this shows which world finds which mistake.
mutations:
	$(call step,deliberate mistakes that the simulator must find)
	@$(MAKE) PROFILE=checks checks-build
	tools/run-tests checks "sim sim" -- --nocapture mutations::
	cat target/tests/sim-sim.log

# Which world finds each mistake soonest: the tests try that one first.
mutation-seeds:
	$(call step,seeds of small worlds that find the mistakes)
	@$(MAKE) PROFILE=checks checks-build
	tools/run-tests checks "sim sim" -- --nocapture --ignored --exact mutations::mutation_seeds
	sed -n 's/^\([A-Z][A-Za-z0-9]* [0-9]*\)$$/\1/p' target/tests/sim-sim.log > tests/sim/tests/sim/mutation_seeds.txt

rust-docs:
	$(call step,Rust documentation and its examples)
	RUSTDOC=$(CURDIR)/tools/rustdoc-and-test BATCHWEAVE_RUSTDOC=$(CURDIR)/target/doc cargo test $(CARGO_FLAGS) --doc --quiet

# The package is installed as a user installs it, and again when its files change.
$(VENV)/ready: python/requirements-dev.txt python/pyproject.toml $(shell find python/src -name '*.py' 2>/dev/null)
	$(call step,Python environment)
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r python/requirements-dev.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall ./python
	@touch $@

# One package of the list alone, for targets that need none of the tests' packages.
$(VENV)/maturin $(VENV)/numpy: $(VENV)/%: python/requirements-dev.txt
	test -x $(PYTHON) || python3 -m venv $(VENV)
	grep '^$*[=>]' $< >$@.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r $@.txt
	@mv $@.txt $@

ruff: $(VENV)/ready
	$(call step,ruff)
	$(PYTHON) -m ruff check --quiet python
	$(PYTHON) -m ruff check --quiet --config python/pyproject.toml tests/py tests/gpu tools/paper tools/live tools/release

mypy: $(VENV)/ready
	$(call step,mypy)
	cd python && ../$(PYTHON) -m mypy --no-error-summary
	$(PYTHON) -m mypy --no-error-summary --config-file python/pyproject.toml --strict tests/py tests/gpu tools/paper tools/live tools/release

python-ready: $(VENV)/ready

# Most of these tests wait for daemons, so four at a time. Under CI a skipped test is a failure: see
# tests/py/no_skips.py.
# The path of a socket is short, and pytest's own folder with that of a worker is not.
# Bytecode is written, whatever the environment says: hundreds of processes import the client, and
# each worker the tests, which pytest rewrites. numpy starts no threads, which spin when they are new.
pytest = @folder=$$(mktemp -d -p $$(tools/test-folder) py-XXXXXX) && BATCHWEAVE_BIN_DIR=$(CURDIR)/$(BUILT) PYTHONPATH=tests/py \
	TMPDIR=$$(tools/test-folder) PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest -p no_skips -p no:anyio -q -n 4 --basetemp $$folder $(1); status=$$?; rm -rf $$folder; exit $$status

py-tests: $(VENV)/ready
	$(call step,Python tests of the client)
	$(call pytest,--dist worksteal --rootdir python -c python/pyproject.toml python/tests)

quick-py-tests: $(VENV)/ready
	$(call step,Python tests without daemons)
	$(call pytest,--dist worksteal -m 'not daemons' --rootdir python -c python/pyproject.toml python/tests)

# A file at a time, since its tests share a site of daemons or a browser.
py-site-tests: $(VENV)/ready
	$(call step,Python tests of programs and documents)
	$(call pytest,--dist loadfile --no-loadscope-reorder --rootdir tests/py tests/py)

# PyTorch is large, so it has a separate environment and command. FRAMEWORKS_PYTHON names a
# Python that already has torch, transformers, accelerate, pytest, numpy and the packages of
# python/requirements-frameworks.txt; then nothing is installed. Spark needs Java 17 or newer.
FRAMEWORKS_VENV := .venv-frameworks
FRAMEWORKS_PYTHON := $(FRAMEWORKS_VENV)/bin/python
TORCH_ARGS := torch

test-frameworks: build
	$(call step,tests with PyTorch Ray and Spark)
	@if [ "$(FRAMEWORKS_PYTHON)" = "$(FRAMEWORKS_VENV)/bin/python" ] && ! $(FRAMEWORKS_PYTHON) -c 'import torch, ray, pyspark' 2>/dev/null; then \
		echo 'Installs PyTorch, Ray and Spark into $(FRAMEWORKS_VENV): 6.5 GB on disk from PyPI (with CUDA), 2 GB with'; \
		echo "TORCH_ARGS='torch --index-url https://download.pytorch.org/whl/cpu'. Stop here with Ctrl-C."; \
		sleep 5; \
		python3 -m venv $(FRAMEWORKS_VENV) && \
		$(FRAMEWORKS_PYTHON) -m pip install --quiet --disable-pip-version-check pytest numpy && \
		$(FRAMEWORKS_PYTHON) -m pip install --quiet --disable-pip-version-check $(TORCH_ARGS) && \
		$(FRAMEWORKS_PYTHON) -m pip install --quiet --disable-pip-version-check transformers accelerate lightning jax \
			-r python/requirements-frameworks.txt; \
	fi
	@command -v java >/dev/null || { echo 'no java: the tests with Spark need Java 17 or newer (apt-get install default-jre-headless)'; exit 1; }
	BATCHWEAVE_BIN_DIR=$(CURDIR)/$(BUILT) PYTHONPATH=python/src $(FRAMEWORKS_PYTHON) -m pytest -q --rootdir python \
		-c python/pyproject.toml python/tests/test_chat_templates.py python/tests/test_torch*.py python/tests/test_jax*.py python/tests/test_lightning*.py python/tests/test_ray*.py python/tests/test_spark*.py
	BATCHWEAVE_BIN_DIR=$(CURDIR)/$(BUILT) PYTHONPATH=python/src PYTHON=$(FRAMEWORKS_PYTHON) tests/gpu/run --tiny

# BENCH_ARGS="--only ingest" runs one of them, BENCH_ARGS=--record commits the figures.
bench: build
	$(call step,benchmarks)
	TMPDIR=$${TMPDIR:-/dev/shm} tools/bench $(BUILT)/batchweave $(BENCH_ARGS)

# PAPER_PYTHON runs all of it: one with numpy, Pillow and torch, and for more
# systems av, confluent-kafka, megatron-energon, obstore, pyarrow, mosaicml-streaming and tiktoken; what it lacks is named in the results.
PAPER_PYTHON := $(if $(wildcard $(FRAMEWORKS_PYTHON)),$(FRAMEWORKS_PYTHON),$(PYTHON))
paper_run = PYTHON=$(PAPER_PYTHON) tools/paper/run --bin-dir $(BUILT) $(PAPER_ARGS)

# PAPER_ARGS="--only e4" runs one of them.
paper: build $(VENV)/ready
	$(call step,experiments of the paper)
	$(paper_run) --scale full

paper-quick: build $(VENV)/ready
	$(call step,experiments of the paper in short)
	$(paper_run) --scale quick

units:
	$(call step,systemd units)
	tools/check-units $(BUILT)
	tools/check-install

scripts:
	$(call step,shell scripts and workflows)
	tools/check-scripts

comma := ,
# Before a release. BATCHWEAVE_LIVE_BASE=FOLDER keeps the installed Debian there for the next run.
KEPT := BATCHWEAVE_LIVE_BASE$(comma)BATCHWEAVE_LIVE_MIRROR$(comma)BATCHWEAVE_LIVE_PROGRAMS$(comma)GOPROXY$(comma)TMPDIR
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo --preserve-env=$(KEPT))
live-systemd: build
	$(call step,the units in a booted Debian)
	$(AS_ROOT) python3 tools/live/systemd.py $(BUILT)

# Before a release. BATCHWEAVE_LIVE_PROGRAMS=FOLDER keeps the compiled programs there for the next run.
live-kubernetes: build
	$(call step,the manifests in a Kubernetes cluster)
	$(AS_ROOT) env PATH="$$PATH" python3 tools/live/kubernetes.py $(BUILT)

IMAGE ?= batchweave:0.1.0

image:
	tools/image build $(IMAGE)

# The image alone, from the built programs.
image-check:
	$(call step,container image)
	tools/image check $(BUILT)

# WHEEL=FILE takes a wheel that exists.
release: build $(VENV)/maturin
	$(call step,release)
	@tools/system-packages python packages
	tools/make-release $(PYTHON) $(BUILT) dist

CLEAN := BATCHWEAVE_CLEAN_BASE$(comma)BATCHWEAVE_LIVE_MIRROR$(comma)CI$(comma)TMPDIR
check-release:
	$(call step,wheel and Debian package in a clean Debian)
	@tools/system-packages packages
	$(if $(filter-out 0,$(shell id -u)),sudo --preserve-env=$(CLEAN)) tools/check-deb dist/batchweave_*.deb
	$(if $(filter-out 0,$(shell id -u)),sudo --preserve-env=$(CLEAN)) tools/check-wheel dist/batchweave-*.whl

# The package alone, from the built programs. The Debian is kept for the next time.
package-check:
	$(call step,Debian package)
	BATCHWEAVE_CLEAN_BASE=$(CURDIR)/target/clean-debian tools/check-deb $(BUILT)

docs: $(VENV)/ready
	$(PYTHON) tools/book target/book

# After a change of config/*.toml or of --help.
generated-docs: build $(VENV)/ready
	BATCHWEAVE_BIN_DIR=$(CURDIR)/$(BUILT) PYTHONPATH=tests/py $(PYTHON) tests/py/generated_docs.py

# After a change of deploy/kubernetes or deploy/prometheus; needs kubectl.
manifests: $(VENV)/ready
	PYTHONPATH=tests/py $(PYTHON) tests/py/manifests.py
	PYTHONPATH=tests/py $(PYTHON) tests/py/chart.py

clean:
	rm -rf target $(VENV) $(FRAMEWORKS_VENV)
