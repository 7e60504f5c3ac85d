#!/usr/bin/env bash
# deny.toml, checked: licences, duplicates, sources, and advisories where their database is at hand. It is a repository
# of its own, and nothing is fetched here but crates: `cargo deny fetch` brings it.
#
#   tests/deny.sh TOOLS_DIR
set -euo pipefail

tools=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
databases=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs

checks=(licenses bans sources)
if [[ -n $(find "$databases" -mindepth 1 -maxdepth 1 2>/dev/null) ]]; then
  checks+=(advisories)
else
  echo "advisories: NOT CHECKED, no database in $databases (cargo deny fetch brings it)"
fi
# What is asked about is every platform's crates, and a build has fetched this one's.
cargo fetch --locked --quiet
"$tools/cargo-deny" --locked --offline --workspace check --hide-inclusion-graph "${checks[@]}"
