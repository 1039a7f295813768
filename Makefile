# Two commands do everything on a fresh Debian 12 machine, as root:
#   make run     build, and compare ccplane's Reno and Cubic with the kernel's own on an emulated link
#   make test    build, and run every test
export PATH := $(HOME)/.cargo/bin:$(PATH)

RUN = --alg reno,cubic --vs native:reno,native:cubic --rate 96mbit --rtt 20ms --queue droptail:1bdp --duration 15s

.PHONY: run build test lint deps bpf-check qemu fuzz clean

run: build
	./target/release/ccplane run $(RUN)

build:
	@scripts/setup
	cargo build --release --locked

# Tests run one crate's binary at a time; within a crate, those that register with the kernel take a lock.
test:
	@scripts/setup test
	cargo build --release --locked
	cargo test --workspace --locked
	scripts/bpf --check
	scripts/qemu

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	python3 scripts/deps

clean:
	cargo clean
