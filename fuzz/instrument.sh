#!/usr/bin/env bash
# cargo's RUSTC_WORKSPACE_WRAPPER for fuzzing: adds coverage counters to the libraries that read strangers' bytes, and to
# nothing else, so that every dependency is the one that the other builds use. Stable Rust has the pass, only no short
# name for it. Source: cargo-fuzz 0.13, `src/project.rs`.
set -euo pipefail

if [[ " $* " == *" --crate-type lib "* && $* =~ --crate-name\ coracle_(admission|api|apiserver|agent|cni|dns|netfilter|registry|scheduler|shim)\  ]]; then
  exec "$@" -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
fi
exec "$@"
