#!/usr/bin/env bash
# The tests, and beside them the fuzz targets: tests that run alone leave a core to others most of the time.
#
#   tests/suite.sh TARGET_DIR [NEXTEST_ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(mkdir -p "$1" && cd "$1" && pwd)
shift

# What was built is told to nextest, which then needs no cargo: the fuzz targets' build holds cargo's lock meanwhile.
cargo metadata --locked --format-version 1 >"$target/metadata.json"
cargo nextest list --locked --workspace --list-type binaries-only --message-format json >"$target/binaries.json"

log=$target/fuzz.log
nice -n 19 fuzz/run.sh "$target" 50000 >"$log" 2>&1 &
fuzz=$!
trap 'kill "$fuzz" 2>/dev/null || true' EXIT

status=0
cargo nextest run --cargo-metadata "$target/metadata.json" --binaries-metadata "$target/binaries.json" "$@" || status=$?
wait "$fuzz" || status=$?
cat "$log"
exit "$status"
