#!/usr/bin/env bash
# `make dist`: everything a machine needs, in one archive: binaries, units, provisioning script, examples, docs, licences of
# what the binaries are made of, checksums. The same sources and binaries give the same archive, byte by byte.
#
#   tests/dist.sh BIN_DIR OUT_DIR
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$1" && pwd)
out=$(mkdir -p "$2" && cd "$2" && pwd)
goal_mib=15
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

version=$(cargo metadata --locked --no-deps --format-version 1 |
  python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "coracle"))')
filter=()
case $(uname -m) in
x86_64) arch=amd64 filter=(--x86) ;; # what jumps lead to, as xz packs it best
aarch64) arch=arm64 ;;
*) arch=$(uname -m) ;;
esac
name=coracle-$version-linux-$arch
stage=$work/$name

install -d "$stage/bin" "$stage/examples/systemd"
for program in coracle coracle-cni coracle-shim coracle-oci; do
  install -m 0755 "$bin/$program" "$stage/bin/$program"
  strip --strip-unneeded "$stage/bin/$program"
done
# README.md leads to docs.
git ls-files examples docs | while read -r file; do
  install -D -m "$([[ -x $file ]] && echo 0755 || echo 0644)" "$file" "$stage/$file"
done
install -m 0644 README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE "$stage/"
grep -o '](\([^):#]*\)' "$stage/README.md" | cut -c3- | sort -u | while read -r file; do
  [[ -e $stage/$file ]] || { echo "tests/dist.sh: README.md leads to $file, which is not in the archive" >&2; exit 1; }
done
python3 tests/licenses.py coracle coracle-cni coracle-shim >"$stage/LICENSES.txt"
(cd "$stage" && find . -type f -printf '%P\n' | sort | xargs -d '\n' sha256sum) >"$work/SHA256SUMS"
install -m 0644 "$work/SHA256SUMS" "$stage/SHA256SUMS"

when=$(git log -1 --format=%ct)
tar --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner --mode=go-w -C "$work" -cf - "$name" |
  xz -T1 "${filter[@]}" --lzma2=preset=9 >"$work/$name.tar.xz"
mv "$work/$name.tar.xz" "$out/$name.tar.xz"
(cd "$out" && sha256sum "$name.tar.xz" >"$name.tar.xz.sha256")

(cd "$stage" && du -b bin/* LICENSES.txt | awk '{ printf "%10.1f KiB  %s\n", $1 / 1024, $2 }')
size=$(stat -c %s "$out/$name.tar.xz")
awk -v size="$size" -v goal="$goal_mib" -v file="$out/$name.tar.xz" 'BEGIN {
  printf "%10.1f MiB  %s (goal: under %d)\n", size / 1048576, file, goal
  exit size > goal * 1048576
}' || { echo "tests/dist.sh: the archive is larger than $goal_mib MiB" >&2; exit 1; }
