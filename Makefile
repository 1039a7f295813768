# Two commands do everything on a fresh Debian 12 machine, as root:
#   make run     build, and compare ccplane's Reno and Cubic with the kernel's own on an emulated link
#   make test    build, and run every test
export PATH := $(HOME)/.cargo/bin:$(PATH)

RUN = --datapath linux --alg reno,cubic --vs native:reno,native:cubic --rate 96mbit --rtt 20ms --queue droptail:1bdp --duration 15s

.PHONY: run build test lint fuzz package python install-c clean

run: build
	cargo run --release --locked --quiet -- run $(RUN)

# The command alone. `cargo build --release -p ccplane-paper -p ccplane-bench` builds its programs.
build:
	@scripts/setup
	cargo build --release --locked

# `cargo tests` is an alias: all crates, with every QUIC stack. Also: the Python package in a clean
# environment; the shipped BPF objects come from their sources, and the programs load and run on
# Debian's 6.1 kernel.
test:
	@scripts/setup test
	cargo tests
	scripts/python test
	crates/linux/bpf/build.sh --check
	scripts/qemu

lint:
	@scripts/setup test
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p ccplane-quic --no-default-features --locked -- -D warnings
	cargo clippy -p ccplane-quic --no-default-features --features quinn --all-targets --locked -- -D warnings
	cargo clippy -p ccplane-quic --no-default-features --features s2n --all-targets --locked -- -D warnings
	cargo clippy -p ccplane-quic --features host-quinn,host-s2n --all-targets --locked -- -D warnings
	cd python && cargo fmt --check && CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-../target} cargo clippy --locked -- -D warnings
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
	python3 scripts/book --self-test
	python3 scripts/book --check

fuzz:
	scripts/fuzz

# dist/: a Debian package, an archive with a static binary, an image for containers.
package:
	@scripts/setup package
	scripts/package

# python/dist: a wheel for CPython 3.11 and later.
python:
	@scripts/setup
	scripts/python build

# The C library, its headers, pkg-config and CMake files: make install-c PREFIX=/usr/local
PREFIX = /usr/local
install-c:
	@scripts/setup
	scripts/install-c $(PREFIX)

clean:
	cargo clean
