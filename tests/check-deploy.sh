#!/usr/bin/env bash
# What can be said of deployment without a VM: the scripts are clean, the Vagrantfile is valid, `make stop` ends what it
# should, servers share an etcd.
# As root it installs what that needs; otherwise what is missing is skipped, visibly.
#
#   tests/check-deploy.sh TOOLS_DIR
set -euo pipefail
tools=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."

install_missing() {
  local missing=()
  command -v shellcheck >/dev/null || missing+=(shellcheck)
  command -v vagrant >/dev/null || missing+=(vagrant)
  ((${#missing[@]})) || return 0
  [[ $(id -u) == 0 ]] || return 0
  echo "installing Debian packages: ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
    echo "SKIPPED: apt-get could not install ${missing[*]}"
}

has() {
  command -v "$1" >/dev/null && return 0
  echo "SKIPPED: $1 is not installed"
  return 1
}

install_missing
if has shellcheck; then
  git ls-files '*.sh' .ci examples/systemd/hold-cgroup | while read -r file; do shellcheck -x -S warning "$file"; done
  echo "shellcheck: clean"
fi
if [[ $(id -u) == 0 ]]; then tests/check-demo.sh; else echo "SKIPPED: only root can check the demo"; fi
if [[ $(id -u) != 0 ]]; then
  echo "SKIPPED: only root can check servers that share an etcd"
elif [[ ! -x $tools/etcd || ! -x $tools/etcdctl ]]; then
  echo "SKIPPED: no etcd or etcdctl in $tools (make deps)"
else
  tests/check-provision.sh "$tools"
fi
if has vagrant; then
  # No hypervisor is needed to say whether the file is valid; its directory is vagrant's own.
  VAGRANT_HOME=$(mktemp -d)
  trap 'rm -rf "$VAGRANT_HOME"' EXIT
  for servers in 1 3; do
    CORACLE_SERVERS=$servers VAGRANT_HOME=$VAGRANT_HOME VAGRANT_CHECKPOINT_DISABLE=1 timeout 120 vagrant validate --ignore-provider
  done
fi
