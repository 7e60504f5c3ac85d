#!/usr/bin/env bash
# `make test-vm`: examples/provision.sh on real kernels. A server VM and node VMs without a network but their own are
# provisioned, run nginx, and suffer what machines suffer: restarts, SIGKILL, reboots, a power cut, an upgrade, the end.
# With several servers, other steps (servers.sh): they share an etcd, and one of them fails.
#
#   tests/vm/run.sh RELEASE TOOLS_DIR IMAGES_DIR OUT_DIR
#
# RELEASE is a directory with a release archive (make dist) or with the binaries of any build. What is printed stays in
# OUT_DIR/transcript.txt, with the time of each step; after a failure serial logs and journals stay in OUT_DIR/logs.
#
#   VM_HALF=1       the first half only: up to services that are restarted and killed (what CI has time for)
#   VM_ONLY=WORDS   only these steps (functions of steps.sh) and those that a cluster needs: VM_ONLY="power_cut uninstall"
#   VM_NODES        number of nodes [2]; the last one is on a subnet of its own (VM_FAR=0: on the others')
#   VM_SERVERS      number of servers [1]
#   VM_SERVER_NODE=1   the server runs pods too: VM_NODES=1 is a cluster of two nodes then
#   VM_SUITE        Debian's release in the VMs [bookworm]
#   VM_ACCEL, VM_CPUS, VM_LIMIT, VM_PATIENCE   accelerator [tcg], CPUs of each VM [1], seconds for everything [5400;
#                   with several servers 7200],
#                   factor of all other time limits [4]
#   VM_TRIES        whole runs until one passes [1]; each that fails is told
#   VM_KEEP=SECONDS keeps the VMs for a look after a failure
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [[ ! ${VM_BOUNDED:-} ]]; then
  [[ $(id -u) == 0 ]] || { echo "tests/vm: only root may make namespaces and taps" >&2; exit 1; }
  mkdir -p "$4"
  tries=${VM_TRIES:-1}
  for ((try = 1; try <= tries; try++)); do
    if VM_BOUNDED=1 timeout --kill-after=20 "${VM_LIMIT:-$((${VM_SERVERS:-1} > 1 ? 7200 : 5400))}" "$0" "$@" 2>&1 | tee "$4/transcript.txt"; then exit; else status=$?; fi
    # Interrupted.
    if ((status > 128)); then exit "$status"; fi
    rm -rf "$4/logs-$try"
    mv "$4/logs" "$4/logs-$try"
    echo "tests/vm: try $try of $tries FAILED; its logs are in $4/logs-$try" >&2
  done
  exit 1
fi
release=$(cd "$1" && pwd) tools=$(cd "$2" && pwd) images=$(cd "$3" && pwd)
suite=${VM_SUITE:-bookworm}
image=$4/image-$suite out=$4/logs more_packages=()
if ((${VM_SERVERS:-1} > 1)); then
  image+=-etcd
  more_packages=(etcd-server etcd-client openssl)
fi
nodes=${VM_NODES:-2}
mkdir -p "$image"
image=$(cd "$image" && pwd)
rm -rf "$out" && mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/coracle-vm.XXXXXX")
medium=$work/medium.tar
export KUBECONFIG=$work/kubeconfig

# shellcheck source=tests/vm/machine.sh
source "$here/machine.sh"
# shellcheck source=tests/vm/steps.sh
source "$here/steps.sh"
# shellcheck source=tests/vm/servers.sh
source "$here/servers.sh"

# What is provisioned from: $from, by the name that it has on the medium.
find_release() {
  local archive name
  archive=$(find "$release" -maxdepth 1 -name 'coracle-*.tar.xz' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
  if [[ $archive ]]; then
    from=$archive
    return 0
  fi
  # Symbols are of no use there, and most of what a build for debugging has.
  from=$work/build
  mkdir "$from"
  for name in coracle coracle-cni coracle-shim coracle-oci; do
    [[ -x $release/$name ]] || { echo "tests/vm: neither a release archive nor $name in $release" >&2; return 1; }
    strip --strip-unneeded -o "$from/$name" "$release/$name"
  done
}

qemu=(qemu-system-x86 qemu-utils)
packages=(mmdebstrap e2fsprogs openssh-client iproute2 seabios)
# What of them is called, each with a word that it answers to.
programs=("qemu-system-x86_64 --version" "qemu-img --version" "mmdebstrap --version" "mke2fs -V" "ssh -V" "ip -V")

# The whole list in one call, and all of qemu in the version that this machine's archive has: a newer qemu-utils from
# elsewhere goes with no other, and apt would take it away to make room.
install_missing() {
  local package program version missing=()
  for package in "${qemu[@]}" "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  if ((${#missing[@]})); then
    echo "installing Debian packages: ${missing[*]}"
    apt-get update -q >"$out/apt.log" 2>&1 || { tail -n 20 "$out/apt.log" >&2; return 1; }
    version=$(apt-cache policy qemu-system-x86 | sed -n 's/^ *Candidate: //p')
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends --allow-downgrades \
      "${qemu[@]/%/=$version}" "${packages[@]}" >>"$out/apt.log" 2>&1 || { tail -n 20 "$out/apt.log" >&2; return 1; }
  fi
  for program in "${programs[@]}"; do
    # shellcheck disable=SC2086 # a program and its word
    timeout 20 $program >/dev/null 2>&1 || {
      echo "tests/vm: '$program' does not answer after installing ${qemu[*]} ${packages[*]}" >&2
      return 1
    }
  done
}

table=()
step() {
  local title=$1 begin end needed="boot take_inventories provision_server provision_nodes roll_out move_to_etcd join_servers"
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
    printf '\ntests/vm: FAILED in step "%s"\n' "${current:-start}" >&2
    kubectl get nodes,pods -A -o wide >"$out/kubectl.txt" 2>&1
    kubectl get events -A >>"$out/kubectl.txt" 2>&1
    for name in "${!vm_pid[@]}"; do
      timeout 30 bash -c "$(declare -f within on); $(declare -p vm_address work image netns); on $name 'journalctl -b --no-pager'" >"$out/$name.journal" 2>&1
    done
  fi
  if [[ ${VM_KEEP:-} ]] && ((status)); then
    echo "kept for a look (VM_KEEP): namespace ${netns:-}, $work; press Ctrl-C to end" >&2
    sleep "$VM_KEEP"
  fi
  for name in "${!vm_pid[@]}"; do kill -9 "${vm_pid[$name]}" 2>/dev/null; done
  remove_network
  wait 2>/dev/null
  rm -rf "$work"
  if ((${#table[@]})); then printf '\n' && printf '%s\n' "${table[@]}" "$(printf '%-64s %7d s' together $((SECONDS - begin_all)))"; fi
  if ((!status)); then
    rm -rf "$out"
    echo "${#table[@]} passed, 0 failed"
  else
    echo "${#table[@]} passed, 1 failed"
  fi
  exit "$status"
}

# A group is read to its end before it begins: whoever edits this file while it runs does no harm.
{
  trap finish EXIT
  trap 'exit 130' INT TERM
  install_missing
  "$here/image.sh" "$image" "$suite" "${more_packages[@]}"
  find_release
  make_medium "$root"/examples/provision{,-etcd}.sh "$root/examples/systemd" "$images/nginx.tar" "$images/busybox.tar" "$from"
  make_network
  begin_all=$SECONDS
  run_steps
  exit
}
