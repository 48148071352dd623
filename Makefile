# What one does with falaj. `make` lists it; `make test` is the command that proves a change.
# Everything is built into .venv and $(TARGET); stamp files keep what is done from being redone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ifndef PYTHON
PYTHON := $(shell tools/find-python)
endif
TARGET := $(or $(CARGO_TARGET_DIR),target)
BIN := .venv/bin
CORE := python/falaj/_core.abi3.so
# A wheel goes to others: its panic messages name no folder of the machine that built it. These flags
# would make cargo build everything else again, so what is shipped has a directory of its own. The
# module of .venv and that of the wheel are one build, and the harnesses try that build of the engine.
NO_PATHS := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo --remap-path-prefix=$(or $(RUSTUP_HOME),$(HOME)/.rustup)=rustup \
	--remap-path-prefix=$(CURDIR)=falaj
SHIPPED := $(TARGET)/shipped
AS_SHIPPED := RUSTFLAGS="$${RUSTFLAGS:-} $(NO_PATHS)" CARGO_TARGET_DIR="$(SHIPPED)"
# Fail points and planted bugs are no cargo features, which any crate of a program could turn on. What has
# them lies in directories of its own, from which nothing else is taken.
STORM := RUSTFLAGS="$${RUSTFLAGS:-} $(NO_PATHS) --cfg falaj_failpoints" CARGO_TARGET_DIR="$(TARGET)/storm"
STORM_PROGRAM := $(TARGET)/storm/models/falaj-storm
CANARIES := RUSTFLAGS="--cfg falaj_canaries" CARGO_TARGET_DIR="$(TARGET)/canaries"
MATURIN := $(AS_SHIPPED) $(BIN)/maturin
DIST ?= dist
SHUTTLE := RUSTFLAGS="$${RUSTFLAGS:-} --cfg shuttle" CARGO_TARGET_DIR="$(TARGET)/shuttle" \
	cargo test -p falaj --profile models --locked --test shuttle
RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help check-tools check check-services venv build test test-proof proof-explore proof-canaries proof-hostile proof-asan proof-storm \
	proof-power proof-guest proof-crashes proof-outside proof-together proof-models proof-sanitizers proof-programs soak coverage mutants \
	lint lint-rust lint-python public-api test-rust test-loom test-shuttle test-python test-spark test-spark-release \
	test-spark-all bench bench-spark bench-peers bench-server bench-bucket bench-plots demo demo-server demo-bucket docs docs-serve wheel wheels format clean \
	build-server build-server-static check-image check-server page-images bucket-servers bucket-servers-all check-bucket

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

check-tools: ## say what this machine lacks, if anything
	@tools/check-tools "$(PYTHON)" $(MAKECMDGOALS)

# In one pool: what one of the three would leave idle at its end, the others take.
check: | check-tools ## everything that must be green before a change lands: test, lint, test-proof
	$(PYTHON) tools/parts.py all "$(TARGET)/words-of-check"

check-services: $(CORE) .venv/.dev ## check-server and check-bucket, beside each other
	$(PYTHON) tools/parts.py services "$(TARGET)/words-of-services"

venv: .venv/.dev ## bring what tests and lints run with into .venv

build: $(CORE) ## build the compiled module and install falaj into .venv

# Some parts at a time: building the module keeps one core busy, and pytest waits for a third of its time.
test: | check-tools ## all tests, of Rust, Python and Spark, and the models
	$(PYTHON) tools/parts.py test "$(TARGET)/words-of-tests"

# The reliability harness at the size of a push (docs/RELIABILITY.md). Seeds are fixed; other ones are for
# soaks.
test-proof: $(CORE) ## the reliability harness, push-sized (docs/RELIABILITY.md)
	$(BIN)/python tools/parts.py proof "$(TARGET)/proof"

proof-programs: | check-tools
	$(AS_SHIPPED) cargo build --release --locked -p falaj-sim -p falaj-hostile
	$(STORM) cargo build --profile models --locked -p falaj-storm

proof-explore: | check-tools
	$(AS_SHIPPED) cargo run --release --locked -p falaj-sim -- explore --states 2000000 --progress

proof-canaries: | check-tools
	$(CANARIES) cargo run --profile models --locked -p falaj-sim -- canaries

# A kernel in a process, whose disk drops, fails or tears writes: btrfs too.
proof-guest: | check-tools ## power cuts in a guest, where user-mode-linux and its tools are installed
	$(STORM) cargo build --profile models --locked -p falaj-storm
	$(BIN)/python tools/guest.py "$(STORM_PROGRAM)" --cuts $(or $(CUTS),12) --dir $(PROOF_DIR) || [ $$? = 77 ]

# Another seed is other schedules: FALAJ_SHUTTLE_SEED=…; a failure is seen again with the seed it prints.
proof-models: | check-tools
	FALAJ_LOOM=all $(MAKE) test-loom
	FALAJ_SHUTTLE_SCHEDULES=5_000 $(MAKE) test-shuttle

# Not of every push: `make test` runs these tests at every fifth point or so.
proof-crashes: | check-tools ## deaths and power cuts at all points of compaction, consumers, queues, retention, shared logs, sinks
	FALAJ_CRASHES=all cargo test -p falaj --profile models --locked --lib --test log --test store

# Not of every push: two builds with a nightly compiler, one of the standard library too.
proof-sanitizers: | check-tools ## the engine's tests under ThreadSanitizer and AddressSanitizer, where a nightly compiler is
	tools/sanitize all || { [ $$? = 77 ] && echo "NOT RUN: sanitizers"; }

# A minute for each of seventeen targets, as many at a time as there are cores; and failing calls.
proof-hostile: | check-tools
	$(AS_SHIPPED) cargo run --release --locked -p falaj-hostile -- push

# Not of every push: it builds all of it anew, with a nightly compiler.
ASAN_SECONDS ?= 120

proof-asan: | check-tools ## hostile bytes and failing calls under AddressSanitizer, where a nightly compiler is
	tools/asan "$(TARGET)" $(ASAN_SECONDS)

# Stores of the storm lie in memory where there is room for them: what they tell of is processes, not disks.
PROOF_DIR ?= $(shell [ "$$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && \
	echo /dev/shm || echo "$${TMPDIR:-/tmp}")

# And how all harnesses go on with what they kept.
proof-storm: $(CORE) proof-programs
	$(STORM) cargo run --profile models --locked -p falaj-storm -- kill --kills 500 --records 5000000 --seed 20 \
		--dir $(PROOF_DIR) --python $(BIN)/python
	$(BIN)/python -m pytest tests/soak --proof -m proof -p no:cacheprovider

proof-power: | check-tools
	$(STORM) cargo run --profile models --locked -p falaj-storm -- power --cuts 50 --seed 20 --dir $(PROOF_DIR) || \
		{ [ $$? = 77 ] && echo "NOT RUN: power cuts, for want of the right to mount"; }

# Two fifths of what each of some forty Javas takes to start; `make test` has too few for it.
.venv/.classes: .venv/.dev | $(CORE)
	$(BIN)/python -m falaj.spark.archive
	touch $@

# All features of a store in any order, against plain lists; of other seeds: python -m together.
proof-together: $(CORE)
	$(BIN)/python -m pytest tests/together --proof -p no:cacheprovider

OUTSIDE := tests/proof tests/ship/test_explore.py tests/hostile/test_hostile_bytes.py

proof-outside: $(CORE) .venv/.classes
	$(BIN)/python -m pytest $(OUTSIDE) --proof -p no:cacheprovider --durations=10
	$(BIN)/python -m pytest tests/spark tests/demo --proof -m $(if $(BESIDE_PROOF),"proof or spark",proof) \
		-p no:cacheprovider --durations=10

# All harnesses in shards, for hours (docs/RELIABILITY.md, "How to soak"). What it keeps lies in
# SOAK_DIR; all that it runs is copied there, so that building something else does not change a soak.
SOAK_DIR ?= .soak
soak: $(CORE) proof-programs ## all harnesses for HOURS=…, gone on with after any interruption (docs/RELIABILITY.md)
	@[ -n "$(HOURS)" ] || { echo "say how long: make soak HOURS=3"; exit 2; }
	rm -rf $(SOAK_DIR)/built && mkdir -p $(SOAK_DIR)/built
	tools/asan "$(TARGET)" --programs $(SOAK_DIR)/built
	install $(addprefix "$(SHIPPED)"/release/,falaj-sim falaj-hostile) "$(STORM_PROGRAM)" $(SOAK_DIR)/built
	$(SHUTTLE) --no-run 2>&1 | tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$$/\1/p' | \
		xargs -I {} install {} $(SOAK_DIR)/built/shuttle
	PYTHONPATH=tools $(BIN)/python -m soak --hours $(HOURS) --home $(SOAK_DIR) \
		--scratch $(PROOF_DIR) $(if $(ANEW),--anew) $(if $(ONLY),--only $(ONLY))

coverage: | check-tools ## lines and branches of format, segment, recover and lock that the tests run
	$(PYTHON) tools/cover.py

# In pieces: what is known is kept outside of here, and a piece that was interrupted goes on.
SHARD ?= 0/1
mutants: | check-tools ## change those rooms a little and see a test fail; hours, or a piece: SHARD=k/n
	nice -n 15 $(PYTHON) tools/mutants.py --shard $(SHARD)

lint: $(CORE) ## formatting, clippy, rustdoc, ruff, mypy, stubtest; warnings are errors
	$(BIN)/python tools/parts.py lint "$(TARGET)/words-of-lints"

# The fuzzers are workspaces that no push builds: a new dependency of the engine is missing in their lock files.
lint-rust: .venv/.dev
	cargo fmt --all --check
	cd $(SERVER_DIR) && cargo fmt --check
	for each in log server; do (cd rust/$$each/fuzz && cargo update --workspace --locked --quiet) || exit 1; done
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTFLAGS="$${RUSTFLAGS:-} --cfg falaj_failpoints --cfg falaj_canaries" CARGO_TARGET_DIR="$(TARGET)/planted" \
		cargo clippy --all-targets --locked -p falaj -p falaj-sim -p falaj-storm -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items
	RUSTDOCFLAGS="-D warnings" cargo doc -p falaj --no-deps --locked
	$(BIN)/python tools/public_api.py --check || [ $$? = 77 ]

public-api: | check-tools ## write rust/log/public-api.txt again, where a nightly compiler is
	$(PYTHON) tools/public_api.py

lint-python: $(CORE)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/python -m mypy.stubtest falaj._core --mypy-config-file pyproject.toml

# BESIDE_PROOF=1 leaves out what `make test-proof` does too, and more of it; and what needs a Spark, which
# proof-outside then does with the one that it starts.
test-rust: .venv/.dev ## unit, integration and documentation tests of the crates
	cargo test --workspace --locked $(if $(BESIDE_PROOF),-- --skip small_budget::)
	$(STORM) cargo test --locked -p falaj-storm

test-loom: | check-tools ## the interleavings of the models in rust/log/tests/loom
	RUSTFLAGS="$${RUSTFLAGS:-} --cfg loom" CARGO_TARGET_DIR="$(TARGET)/loom" \
		cargo test -p falaj --profile models --locked --test loom --config 'target."cfg(all())".runner="tools/each"'

test-shuttle: | check-tools ## long random schedules of the models in rust/log/tests/shuttle
	$(SHUTTLE)

# The server is a workspace of its own, so that the engine is never built with what only a server needs.
SERVER := CARGO_TARGET_DIR="$(abspath $(TARGET))/server" cargo
SERVER_DIR := rust/server

build-server: .venv/.made ## build the server and put it into .venv/bin
	cd $(SERVER_DIR) && RUSTFLAGS="$${RUSTFLAGS:-} $(NO_PATHS)" $(SERVER) build --release --locked
	install "$(TARGET)/server/release/falaj-server" $(BIN)/falaj-server

STATIC := $(shell uname -m)-unknown-linux-musl

build-server-static: .venv/.wheels | check-tools ## build the server as a program that needs no library, as its image has it
	cd $(SERVER_DIR) && PATH="$(abspath $(BIN)):$$PATH" RUSTFLAGS="$${RUSTFLAGS:-} $(NO_PATHS)" \
		$(SERVER) zigbuild --release --locked --target $(STATIC)

check-image: build-server-static $(CORE) .venv/.dev ## the static server in an empty root, as another user
	export FALAJ_SERVER="$(TARGET)/server/$(STATIC)/release/falaj-server" && STATIC_SERVER="$$FALAJ_SERVER" \
		$(BIN)/python -m pytest tests/server/test_static.py tests/server/test_deploy.py -rs -p no:cacheprovider

page-images: build-server $(CORE) .venv/.dev ## draw the pictures of the server's page in docs/images with Chromium
	$(BIN)/python tools/page_images.py

check-server: $(CORE) .venv/.dev ## tests and lints of the server
	cd $(SERVER_DIR) && $(SERVER) clippy --all-targets --locked -- -D warnings
	cd $(SERVER_DIR) && RUSTDOCFLAGS="-D warnings" $(SERVER) doc --no-deps --locked
	cd $(SERVER_DIR) && $(SERVER) test --locked
	cd $(SERVER_DIR) && $(SERVER) build --locked
	FALAJ_SERVER="$(TARGET)/server/debug/falaj-server" $(BIN)/python -m pytest tests/server -rs -p no:cacheprovider --durations=25

# Servers of buckets that are no Python: where go or npm cannot bring one, tests/ship says NOT RUN for it.
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
AZURITE := azurite@3.35.0
S3S_FS := s3s-fs@0.14.1

bucket-servers: .venv/.made ## put versitygw and azurite into .venv, where go and npm can; some minutes
	[ -x $(BIN)/versitygw ] || GOBIN="$(abspath $(BIN))" timeout 900 go install $(VERSITYGW) || true
	[ -x .venv/azurite/node_modules/.bin/azurite-blob ] || \
		timeout 300 npm install --silent --no-audit --no-fund --prefix .venv/azurite $(AZURITE) || true

# The probe must refuse it. Its crates took one busy core six minutes, so CI leaves it out.
bucket-servers-all: bucket-servers ## s3s-fs as well, a server that is no place; some more minutes
	[ -x .venv/s3s/bin/s3s-fs ] || CARGO_TARGET_DIR="$(TARGET)/s3s" timeout 1800 \
		cargo install --quiet --locked --features binary --root .venv/s3s $(S3S_FS) || true

check-bucket: $(CORE) .venv/.dev ## tests of places and of shipping, on each server that is here
	cd $(SERVER_DIR) && $(SERVER) build --locked
	FALAJ_SERVER="$(TARGET)/server/debug/falaj-server" $(BIN)/python -m pytest tests/ship -rs -p no:cacheprovider --durations=25

test-python: $(CORE) ## pytest: tests, docstring examples, each benchmark once; all but Spark's
	$(BIN)/python -m pytest --ignore tests/spark --ignore tests/server --ignore tests/ship --durations=25 $(if $(BESIDE_PROOF),$(patsubst %,--ignore %,$(OUTSIDE) tests/together))

test-spark: $(CORE) ## what reads and writes topics through PySpark
	$(BIN)/python -m pytest tests/spark

# .venv has the newest PySpark. The others have a .venv each, which borrows all else from it: the module
# is of the stable ABI, and is not built again. SPARKS=4.1 is one of them. Sockets that those leave open
# for the garbage collector are theirs. Of what `make test-proof` runs with the newest, they run that in
# which Spark itself does more than what other tests ask of it: clusters, Connect, drivers that are killed.
# What takes too long for each push (`release`), the newest runs here too.
SPARKS := 4.1 4.2
SPARK_PROOF := $(addprefix tests/,demo/test_demo.py $(addprefix spark/,test_cluster.py test_standalone.py test_connect.py \
	test_streaming.py test_writing.py pipelines/test_killed.py pipelines/test_flows_killed.py))
OLDER_SPARK := -p no:cacheprovider -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

test-spark-release: test-spark
	$(BIN)/python -m pytest tests/spark --release -m release

test-spark-all: test-spark-release $(SPARKS:%=test-spark-%) ## the same with each PySpark that is supported, and more with the older; half an hour

test-spark-%: .venv/.spark-%/.made $(CORE)
	$(<D)/bin/python -m pytest tests/spark $(OLDER_SPARK)
	$(<D)/bin/python -m pytest $(SPARK_PROOF) --proof --release -m "proof or release" $(OLDER_SPARK)

bench: $(CORE) ## one table: our figures, the floors', the bars; under three minutes after the build
	cargo build --release --locked -p falaj-bench
	PYTHONPATH=benches $(BIN)/python -m runner --rust "$(TARGET)/release"

bench-spark: $(CORE) ## Spark, Polars and DuckDB over a topic beside Parquet; some minutes
	PYTHONPATH=benches $(BIN)/python -m runner.tables

bench-peers: $(CORE) .venv/.bench ## falaj beside SQLite, LMDB, a locked file and Redis; three minutes after the build
	PYTHONPATH=benches $(BIN)/python -m runner.peers

# The bare handler, the load and the follower; and chukcha, where Go finds it.
CHUKCHA ?= $(BIN)/chukcha

bench-server: build-server $(CORE) ## the server beside a bare handler and chukcha; three minutes after the build
	cd $(SERVER_DIR) && RUSTFLAGS="$${RUSTFLAGS:-} $(NO_PATHS)" $(SERVER) build --release --locked --example doors
	[ -x "$(CHUKCHA)" ] || GOBIN="$(abspath $(BIN))" go install github.com/YuriyNasretdinov/chukcha@latest 2>/dev/null || true
	PYTHONPATH=benches $(BIN)/python -m runner.server $(BIN)/falaj-server "$(TARGET)/server/release/examples/doors" --chukcha $(CHUKCHA)

bench-bucket: bucket-servers $(CORE) .venv/.dev ## shipping and restoring beside the bare client of the place; under three minutes
	PYTHONPATH=benches:tests $(BIN)/python -m runner.bucket

bench-plots: $(CORE) .venv/.bench ## keep the last bench: figures.json, the tables in both READMEs, plots
	PYTHONPATH=benches $(BIN)/python -m runner.keep

demo: $(CORE) ## the main job on real flights; under three minutes after the build
	$(BIN)/falaj demo

demo-server: build-server $(CORE) ## the flights over HTTP, with a server that is killed on the way; two minutes after the build
	PYTHONPATH=client $(BIN)/python -m falaj.demo.serving --program $(BIN)/falaj-server

# moto comes with the extra `dev`; the program that serves it is the one of the tests.
demo-bucket: $(CORE) ## the flights in a bucket on loopback, restored after their directory is gone; two minutes after the build
	$(BIN)/python -m falaj.demo.shipping --server tests/ship/moto_in_turn.py

# mkdocs.yml says where it lies. What griffe complains of in docstrings, zensical only passes on.
docs: .venv/.docs ## the documentation site, in .site/html; warnings are errors
	$(BIN)/python tools/site_pages.py
	$(BIN)/zensical build --clean --strict 2>&1 | tee .site/words
	! grep griffe: .site/words

docs-serve: docs ## show that site on http://localhost:8000; `make docs` in another shell renews it
	$(BIN)/zensical serve

wheel: .venv/.dev ## the abi3 wheel and the source package, in dist/ (or DIST=)
	rm -rf "$(DIST)"
	$(MATURIN) build --release --locked --out "$(DIST)"
	$(MATURIN) sdist --out "$(DIST)"

wheel-client: .venv/.dev ## the client's wheel, pure Python, in dist/ (or DIST=), tried in an empty environment
	$(BIN)/python tools/client_wheel.py "$(DIST)"

# WITH="PYTHON…" uses them in other Pythons, of another C library or in an emulator too. ONLY=musl builds those alone.
wheels: .venv/.wheels ## all wheels that Rust can build here, in dist/: looked into, installed, used
	$(AS_SHIPPED) $(BIN)/python tools/wheels.py "$(DIST)" $(WITH:%=--python %) $(if $(ONLY),--only $(ONLY))

format: $(CORE) ## let the formatters have their way
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove what the targets above made
	rm -rf .venv .site .cache dist falaj-demo falaj-demo-server falaj-demo-bucket $(CORE) benches/results .benchmarks .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests tools benches -name __pycache__ -prune -exec rm -rf {} +
	cargo clean

# The stamps. Everything comes after check-tools, which never makes anything out of date.
.venv/.made: | check-tools
	$(PYTHON) -m venv --clear .venv
	touch $@

# PySpark comes as sources, mostly jars: not to compress them once more is a fifth of all that this takes.
# pip heeds such settings for what stands on its command line, and not for what it reads with `-r`.
.venv/.dev: pyproject.toml tools/extras.py .venv/.made | check-tools
	mapfile -t wanted < <($(BIN)/python tools/extras.py dev) && \
		$(BIN)/pip install --quiet --config-settings=--build-option=--compression=stored "$${wanted[@]}"
	touch $@

.venv/.bench: pyproject.toml tools/extras.py .venv/.made | check-tools
	$(BIN)/pip install --quiet -r <($(BIN)/python tools/extras.py bench)
	touch $@

.venv/.wheels: pyproject.toml tools/extras.py .venv/.made | check-tools
	$(BIN)/pip install --quiet -r <($(BIN)/python tools/extras.py wheels)
	touch $@

.venv/.docs: pyproject.toml tools/extras.py .venv/.made | check-tools
	$(BIN)/pip install --quiet -r <($(BIN)/python tools/extras.py docs)
	touch $@

.PRECIOUS: .venv/.spark-%/.made
.venv/.spark-%/.made: | .venv/.dev
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet "pyspark==$*.*"
	printf '%s\n' $(CURDIR)/.venv/lib/python*/site-packages $(CURDIR)/python >$$(echo $(@D)/lib/python*/site-packages)/borrowed.pth
	printf '#!/bin/sh\nexec %s -m falaj "$$@"\n' $(CURDIR)/$(@D)/bin/python >$(@D)/bin/falaj
	chmod +x $(@D)/bin/falaj
	touch $@

$(CORE): $(RUST_SOURCES) pyproject.toml .venv/.dev | check-tools
	$(MATURIN) develop --release --locked
	touch $@
