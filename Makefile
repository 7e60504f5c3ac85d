# The only list of commands. `make run` and `make test` do all set-up themselves on a bare Debian 12 as root.

SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export PATH := $(HOME)/.cargo/bin:$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TOOLS := $(TARGET)/tools
IMAGES := $(TARGET)/images
BIN := $(TARGET)/bin
# A process that stays for every pod, and one that starts for every container: nothing to link and nothing to relocate
# at the start, so all of them share their pages.
SHIM_RUSTFLAGS := -C target-feature=+crt-static -C relocation-model=static

# With the tests, whose dependencies have features of their own: without them, all that stands on tokio is built twice.
BUILD_FOR_TESTS := cargo build --locked --workspace --bins --tests

# Emulated machines on a busy one: a first try that fails is told, and a second one counts.
VM_HALF = VM_HALF=1 VM_NODES=1 VM_TRIES=2 VM_LIMIT=1500 tests/vm/run.sh \
  "$(TARGET)/debug" "$(TOOLS)" "$(IMAGES)" "$(TARGET)/vm"

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: deps
deps: ## Install what building and testing need (Debian packages, Rust, kubectl)
	tests/deps.sh "$(TOOLS)"

.PHONY: build
build: deps ## Release binaries in target/bin
	$(MAKE) --jobs="$$(nproc)" build-coracle build-shim

# Beside each other, from one pool of jobs: the end of either keeps but one core busy.
.PHONY: build-coracle
build-coracle:
	+cargo build --locked --release -p coracle -p coracle-cni
	mkdir -p "$(BIN)"
	install -m 0755 "$(TARGET)"/release/coracle "$(TARGET)"/release/coracle-cni "$(BIN)/"

.PHONY: build-shim
build-shim:
	+host=$$(rustc -vV | sed -n 's/^host: //p')
	LIBSECCOMP_LINK_TYPE=static LIBSECCOMP_LIB_PATH=$$(dirname "$$(gcc -print-file-name=libseccomp.a)") \
	  RUSTFLAGS="$(SHIM_RUSTFLAGS)" cargo build --locked --profile shim --target "$$host" -p coracle-shim
	mkdir -p "$(BIN)"
	install -m 0755 "$(TARGET)/$$host"/shim/coracle-shim "$(TARGET)/$$host"/shim/coracle-oci "$(BIN)/"

.PHONY: images
images: ## The demo's and the tests' container images, from Debian packages
	tests/images/build.sh "$(IMAGES)"

.PHONY: run
run: build images ## Start a one-node cluster with nginx behind a Service (ISOLATED=1: in a network namespace of its own); 8 to 15 minutes the first time
	examples/demo.sh start "$(BIN)" "$(TOOLS)" "$(IMAGES)"

.PHONY: stop
stop: ## End what `make run` started, isolated or not, and leave nothing of it behind; installed packages stay
	examples/demo.sh stop "$(BIN)" "$(TOOLS)" "$(IMAGES)"

.PHONY: test
test: deps images check-deploy ## Unit, component, namespace and root tests, fuzz targets, a server and a node as VMs
	$(BUILD_FOR_TESTS)
	CORACLE_TOOLS="$(TOOLS)" CORACLE_IMAGES="$(IMAGES)" $(if $(filter 0,$(shell id -u)),REQUIRE_ROOT=1) \
	  tests/suite.sh "$(TARGET)" $(TEST_ARGS)
	$(VM_HALF)

.PHONY: fuzz
fuzz: deps ## Every fuzz target, 50,000 executions each (FUZZ_RUNS=10000000 before a release), printed as a table
	fuzz/run.sh "$(TARGET)" "$(or $(FUZZ_RUNS),50000)" $(FUZZ_TARGETS)

.PHONY: check-deploy
check-deploy: deps ## shellcheck, vagrant validate, what `make stop` ends, servers that share an etcd
	tests/check-deploy.sh "$(TOOLS)"

.PHONY: check
check: deps ## fmt, clippy, doc, deny, tidy
	cargo fmt --all --check
	tests/deny.sh "$(TOOLS)"
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	cargo nextest run --locked --workspace --test tidy

.PHONY: bench
bench: build images ## Figures of ARCHITECTURE.md, printed as a table (SECTIONS="etcd scale" for some; BENCH_NODES, BENCH_PODS: docs/scale.md)
	tests/bench.sh "$(BIN)" "$(TOOLS)" "$(IMAGES)" $(SECTIONS)

.PHONY: bench-compare
bench-compare: deps images ## Figures of two builds side by side: OLD=DIR NEW=DIR (RUNS=3, SECTIONS="pods api")
	tests/bench.sh --compare "$(OLD)" "$(NEW)" "$(TOOLS)" "$(IMAGES)" --runs "$(or $(RUNS),3)" $(SECTIONS)

.PHONY: dist
dist: build ## Release archive in target/dist: binaries, units, provision.sh, examples, licences, checksums
	tests/dist.sh "$(BIN)" "$(TARGET)/dist"

.PHONY: test-vm
test-vm: dist images ## provision.sh and a whole cluster in VMs of their own (no KVM needed; VM_NODES=1 for a smaller one; VM_SERVERS=3: etcd and three servers, of which `make test` runs nothing)
	tests/vm/run.sh "$(TARGET)/dist" "$(TOOLS)" "$(IMAGES)" "$(TARGET)/vm"

.PHONY: test-vm-half
test-vm-half: deps images ## The first half of it, with one node and the debug binaries, as `make test` runs it
	$(BUILD_FOR_TESTS)
	$(VM_HALF)

.PHONY: clean
clean: ## Remove build output
	cargo clean
