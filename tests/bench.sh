#!/usr/bin/env bash
# `make bench`: the figures of ARCHITECTURE.md on this machine, release binaries, clusters in namespaces without an uplink.
#
#   tests/bench.sh BIN_DIR TOOLS_DIR IMAGES_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export CORACLE_BIN_DIR=$1 CORACLE_TOOLS=$2 CORACLE_IMAGES=$3
cd "$here"
exec cargo run --quiet --locked --release -p coracle-tests --bin bench -- "${@:4}"
