#!/usr/bin/env bash
# `make test-vm`: examples/provision.sh on real kernels. A server VM and node VMs without a network but their own are
# provisioned, run nginx, and suffer what machines suffer: restarts, SIGKILL, reboots, a power cut, an upgrade, the end.
#
#   tests/vm/run.sh DIST_DIR TOOLS_DIR IMAGES_DIR OUT_DIR
#
# VM_NODES (2), VM_ACCEL (tcg; kvm), VM_CPUS (1) and VM_LIMIT (1800 seconds for everything) change it; VM_SERVER_NODE=1
# lets the server run pods too, so that VM_NODES=1 makes a cluster of two nodes. The last node is on a subnet of its own
# (VM_FAR=0: on the others'). VM_ONLY="power_cut uninstall" leaves out all other steps that a cluster does not need. On
# failure serial logs and journals stay in OUT_DIR/logs.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [[ ! ${VM_BOUNDED:-} ]]; then
  VM_BOUNDED=1 exec timeout --kill-after=20 "${VM_LIMIT:-1800}" "$0" "$@"
fi
dist=$(cd "$1" && pwd) tools=$(cd "$2" && pwd) images=$(cd "$3" && pwd)
image=$4/image out=$4/logs
nodes=${VM_NODES:-2}
netns=coracle-vm-$$
mkdir -p "$image"
image=$(cd "$image" && pwd)
rm -rf "$out" && mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/coracle-vm.XXXXXX")
archive=$(find "$dist" -name 'coracle-*.tar.xz' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
export KUBECONFIG=$work/kubeconfig

# shellcheck source=tests/vm/machine.sh
source "$here/machine.sh"
# shellcheck source=tests/vm/steps.sh
source "$here/steps.sh"

install_missing() {
  local package missing=()
  for package in qemu-system-x86 qemu-utils mmdebstrap e2fsprogs openssh-client iproute2 seabios; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  echo "installing Debian packages: ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >"$out/apt.log" 2>&1 ||
    { tail -n 20 "$out/apt.log" >&2; return 1; }
}

table=()
step() {
  local title=$1 begin end needed="boot take_inventories provision_server provision_nodes roll_out"
  shift
  if [[ ${VM_ONLY:-} && " $needed $VM_ONLY " != *" $1 "* ]]; then return 0; fi
  printf '\033[1m==> %s\033[0m\n' "$title"
  current=$title
  begin=$(date +%s%3N)
  "$@"
  end=$(date +%s%3N)
  table+=("$(printf '%-64s %7d.%d s' "$title" $(((end - begin) / 1000)) $(((end - begin) % 1000 / 100)))")
}

finish() {
  local status=$? name
  trap - EXIT
  set +e
  if ((status)); then
    printf '\ntests/vm: FAILED in step "%s"; logs are in %s\n' "${current:-start}" "$out" >&2
    kubectl get nodes,pods -A -o wide >"$out/kubectl.txt" 2>&1
    kubectl get events -A >>"$out/kubectl.txt" 2>&1
    for name in "${!vm_pid[@]}"; do
      timeout 30 bash -c "$(declare -f within on); $(declare -p vm_address work image netns); on $name 'journalctl -b --no-pager'" >"$out/$name.journal" 2>&1
    done
  fi
  if [[ ${VM_KEEP:-} ]] && ((status)); then
    echo "kept for a look (VM_KEEP): namespace $netns, $work; press Ctrl-C to end" >&2
    sleep "$VM_KEEP"
  fi
  for name in "${!vm_pid[@]}"; do kill -9 "${vm_pid[$name]}" 2>/dev/null; done
  wait 2>/dev/null
  remove_network
  rm -rf "$work"
  if ((${#table[@]})); then printf '\n' && printf '%s\n' "${table[@]}"; fi
  if ((!status)); then
    rm -rf "$out"
    echo "${#table[@]} passed, 0 failed"
  else
    echo "${#table[@]} passed, 1 failed"
  fi
  exit "$status"
}

[[ $(id -u) == 0 ]] || { echo "tests/vm: only root may make namespaces and taps" >&2; exit 1; }
[[ $archive ]] || { echo "tests/vm: no release archive in $dist: make dist" >&2; exit 1; }
trap finish EXIT
trap 'exit 130' INT TERM
install_missing
"$here/image.sh" "$image"
make_network
run_steps
