#!/usr/bin/env bash
# `make bench`: the figures of ARCHITECTURE.md on this machine, release binaries, clusters in namespaces without an uplink.
# `make bench-compare`: those of two builds side by side; fails if a figure of the second is worse beyond noise.
#
#   tests/bench.sh BIN_DIR TOOLS_DIR IMAGES_DIR [SECTION...]
#   tests/bench.sh --compare BEFORE_BIN_DIR AFTER_BIN_DIR TOOLS_DIR IMAGES_DIR [--runs N] [SECTION...]
set -euo pipefail

usage() {
  sed -n 's/^#   //p' "$0" >&2
  exit 64
}

arguments=()
if [ "${1:-}" = --compare ]; then
  [ $# -ge 5 ] || usage
  for directory in "$2" "$3"; do
    [ -x "$directory/coracle" ] || { echo "no binary coracle in \"$directory\": make build makes one in target/bin" >&2; exit 66; }
  done
  before=$(realpath "$2") after=$(realpath "$3") runs=3
  export CORACLE_TOOLS=$4 CORACLE_IMAGES=$5
  shift 5
  if [ "${1:-}" = --runs ]; then
    [ $# -ge 2 ] || usage
    runs=$2
    shift 2
  fi
  arguments=(compare "$before" "$after" "$runs")
else
  [ $# -ge 3 ] || usage
  export CORACLE_BIN_DIR=$1 CORACLE_TOOLS=$2 CORACLE_IMAGES=$3
  shift 3
fi
cd "$(dirname "$0")/.."
exec cargo run --quiet --locked --release -p coracle-tests --bin bench -- "${arguments[@]}" "$@"
