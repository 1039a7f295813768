# Two commands are enough on a fresh Debian 12 machine, as root:
#   make run     build, and compare ccplane's Reno and Cubic with the kernel's own on an emulated link
#   make test    build, and run the tests
export PATH := $(HOME)/.cargo/bin:$(PATH)

RUN = --datapath linux --alg reno,cubic --vs native:reno,native:cubic --rate 96mbit --rtt 20ms --queue droptail:1bdp --duration 10s

.PHONY: run build test test-all test-release lint fuzz package python install-c clean

# Uses the profile of the tests, which builds in half the time and is fast enough for this link.
run:
	@scripts/setup
	cargo build --locked
	cargo run --locked --quiet -- run $(RUN)

# Builds the optimised command, without its companion programs: `cargo build --release -p
# ccplane-paper -p ccplane-bench` builds these.
build:
	@scripts/setup
	cargo build --release --locked

# Rust tests except the long ones, with one QUIC stack, and a check that the shipped BPF objects
# match their sources. `scripts/test` documents which of them run in parallel.
test:
	@scripts/setup test
	scripts/test

# Adds long tests, every QUIC stack, fuzzing, the Python package in a clean environment, Debian's
# 6.1 kernel in QEMU, and the first day of a new user from a package.
test-all:
	@scripts/setup test
	scripts/test --all

# Before a release: tests that take hours, the Python wheel with the oldest and newest Gymnasium and
# with the notebooks, saved charts in two renderers, and a build with the newest versions of
# dependencies.
test-release: test-all
	cargo test --release --locked -p ccplane-bundle --lib -- --ignored ten_thousand
	cargo run --release --locked -p ccplane-sim --example storm -- --seeds 0..100000
	scripts/miri
	scripts/fuzz 60
	scripts/package
	scripts/package check
	scripts/first-day
	scripts/python release
	scripts/charts
	scripts/systemd $$(ls -t dist/ccplane_*_amd64.deb | head -n 1)
	scripts/newest

lint:
	@scripts/setup test
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p ccplane-quic --no-default-features --locked -- -D warnings
	cargo clippy -p ccplane-quic --no-default-features --features quinn --all-targets --locked -- -D warnings
	cargo clippy -p ccplane-quic --no-default-features --features s2n --all-targets --locked -- -D warnings
	cargo clippy -p ccplane-quic --features host-quinn,host-s2n --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	scripts/wasm
	python3 scripts/deps --self-test
	python3 scripts/deps
	scripts/advisories --self-test
	scripts/advisories
	python3 scripts/circles --self-test
	python3 scripts/circles
	python3 scripts/tests --self-test
	python3 scripts/tests
	scripts/test --self-test
	scripts/instructions --self-test
	scripts/names --self-test
	scripts/names
	python3 scripts/book --self-test
	python3 scripts/book --check

fuzz:
	scripts/fuzz

# Writes to dist/: a Debian package, an archive with a static binary, a container image.
package:
	@scripts/setup package
	scripts/package

# Writes to python/dist: a wheel for CPython 3.11 and later.
python:
	@scripts/setup
	scripts/python build

# Installs the C library, headers, pkg-config and CMake files: make install-c PREFIX=/usr/local
PREFIX = /usr/local
install-c:
	@scripts/setup
	scripts/install-c $(PREFIX)

clean:
	cargo clean
