#!/bin/sh
# Builds the BPF objects that the crate ships (prebuilt/), with clang 14 as Debian 12 has it, so that users need no
# clang. `build.sh --check` builds beside them and compares byte for byte: a stale or tampered object fails.
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
	# Everything that could carry the build host into the object is pinned: target, CPU, paths, standard include paths.
	"$clang" -target bpfel -mcpu=v3 -O2 -g -nostdinc -Wall -Wextra -Werror -Wno-unused-variable -Wno-unused-parameter \
		-ffile-prefix-map="$PWD"=. -fdebug-compilation-dir=. -c "$source" -o "$object"
	"$strip" -g "$object"
	if [ "$out" != prebuilt ]; then
		cmp "$object" "prebuilt/${source%.c}.o" || { echo "build.sh: prebuilt/${source%.c}.o does not come from $source" >&2; exit 1; }
	fi
done
