#!/bin/sh
# Builds the BPF objects in prebuilt/, which the crate ships so that users need no clang. The build
# itself needs clang 14, as in Debian 12. `build.sh --check` builds into a temporary directory and
# compares byte for byte, so that a stale or tampered object fails.
set -eu
cd "$(dirname "$0")"
clang=${CLANG:-clang-14}
strip=${LLVM_STRIP:-llvm-strip-14}
out=prebuilt
case "${1:-}" in
--check) out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT ;;
"") ;;
*) echo "usage: build.sh [--check]" >&2 && exit 2 ;;
esac
for tool in "$clang" "$strip"; do
	command -v "$tool" >/dev/null || { echo "build.sh: $tool is missing: apt-get install clang-14 llvm-14" >&2; exit 1; }
done
for source in *.bpf.c; do
	object=$out/${source%.c}.o
	# Pins everything that could carry the build host into the object: target, CPU, paths and
	# standard include paths.
	"$clang" -target bpfel -mcpu=v3 -O2 -g -nostdinc -Wall -Wextra -Werror -Wno-unused-variable -Wno-unused-parameter \
		-ffile-prefix-map="$PWD"=. -fdebug-compilation-dir=. -c "$source" -o "$object"
	"$strip" -g "$object"
	if [ "$out" != prebuilt ]; then
		cmp "$object" "prebuilt/${source%.c}.o" || { echo "build.sh: prebuilt/${source%.c}.o does not come from $source" >&2; exit 1; }
	fi
done
