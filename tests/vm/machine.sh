# shellcheck shell=bash
# shellcheck disable=SC2154,SC2016,SC2317 # variables are those of run.sh; quoted text is for the VM; functions are called by name
# VMs of a test: a namespace without an uplink, two subnets in it with a bridge each, VMs at their ports. The namespace
# routes between the subnets, and knows nothing of pods. Sourced by run.sh.
#
# Wants: $out (what is kept), $work (what is not), $image (of image.sh), $medium (what every VM finds
# as its second disk: a tar archive, because reading a disk is quick under emulation and deciphering SSH is not).

prefix=198.18
# Emulation needs no hypervisor; VM_ACCEL=kvm where there is one.
accel=${VM_ACCEL:-tcg}
patience=${VM_PATIENCE:-4}
declare -A vm_pid vm_address vm_memory

within() { nsenter --net="$netns" "$@"; }
exec_within() { exec nsenter --net="$netns" "$@"; }

make_network() {
  local subnet
  # Held by a process, not by a mount in /run/netns, where others clean up.
  unshare --net sleep infinity &
  holder=$!
  netns=/proc/$holder/ns/net
  until [[ $(readlink "$netns") && $(readlink "$netns") != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.05; done
  within ip link set lo up
  for subnet in 0 1; do
    within ip link add "vms$subnet" type bridge forward_delay 0
    within ip address add "$prefix.$subnet.254/24" dev "vms$subnet"
    within ip link set "vms$subnet" up
  done
  within sysctl -q net.ipv4.ip_forward=1
}

remove_network() { if [[ ${holder:-} ]]; then kill -9 "$holder" 2>/dev/null || true; fi; }

# define_vm NAME SUBNET NUMBER MEMORY_MB
define_vm() {
  vm_address[$1]=$prefix.$2.$3
  vm_memory[$1]=$4
  qemu-img create -q -f qcow2 -F raw -b "$image/disk.raw" "$work/$1.qcow2"
  within ip tuntap add "tap-$1" mode tap
  within ip link set "tap-$1" master "vms$2"
  within ip link set "tap-$1" up
}

power_on() {
  local name=$1 number=${vm_address[$1]##*.} gateway=${vm_address[$1]%.*}.254 cpu=max
  if [[ $accel == kvm ]]; then cpu=host; fi
  # In place of a subshell: the PID that is ended later is the machine's own.
  exec_within nice -n 10 qemu-system-x86_64 -accel "$accel" -cpu $cpu -smp "${VM_CPUS:-1}" -m "${vm_memory[$name]}" \
    -display none -monitor none -nodefaults -no-user-config \
    -kernel "$image/vmlinuz" -initrd "$image/initrd" \
    -append "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet loglevel=4 mitigations=off audit=0 tsc=unstable systemd.journald.forward_to_console=1 systemd.journald.max_level_console=info systemd.hostname=$name coracle.address=${vm_address[$name]}/24 coracle.gateway=$gateway" \
    -drive "file=$work/$name.qcow2,if=virtio,cache=unsafe" \
    -drive "file=$medium,if=virtio,format=raw,readonly=on" \
    -netdev "tap,id=net,ifname=tap-$name,script=no,downscript=no" \
    -device "virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:00:$(printf %02x "$number")" \
    -device virtio-rng-pci \
    -chardev "file,id=serial,path=$out/$name.serial.log,append=on" -serial chardev:serial \
    >>"$out/$name.qemu.log" 2>&1 </dev/null &
  vm_pid[$name]=$!
}

# As if the plug were pulled.
power_off() {
  kill -9 "${vm_pid[$1]}" 2>/dev/null || true
  wait "${vm_pid[$1]}" 2>/dev/null || true
  unset "vm_pid[$1]"
  forget_connection "$1"
}

forget_connection() { rm -f "$work/ssh-${vm_address[$1]}"; }

# on NAME COMMAND: as root, in a shell there.
on() {
  local name=$1
  shift
  within ssh -q -i "$image/id" -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=20 \
    -o ControlMaster=auto -o ControlPersist=300 -o "ControlPath=$work/ssh-%h" "root@${vm_address[$name]}" "$@" </dev/null
}

# make_medium FILE...: what all VMs get, by its name without directories.
make_medium() {
  local file
  rm -f "$medium"
  for file in "$@"; do tar -C "$(dirname "$file")" -rf "$medium" "$(basename "$file")"; done
}

# eventually SECONDS WHAT COMMAND...: until the command succeeds. The seconds are those of a machine with nothing else
# to do; VM_PATIENCE times as many are waited.
eventually() {
  local limit=$(($1 * patience)) what=$2
  local deadline=$((SECONDS + limit))
  shift 2
  until "$@" >"$work/eventually.log" 2>&1; do
    if ((SECONDS >= deadline)); then
      echo "not within $limit s: $what; the last try said:" >&2
      cat "$work/eventually.log" >&2
      return 1
    fi
    sleep 0.5
  done
}

reachable() { on "$1" true; }
boot_id() { on "$1" cat /proc/sys/kernel/random/boot_id; }

reboot_vm() {
  local name=$1 before
  before=$(boot_id "$name")
  on "$name" 'systemctl reboot' || true
  rebooted() {
    forget_connection "$name"
    local now
    now=$(timeout 15 bash -c "$(declare -f within on boot_id); $(declare -p vm_address work image netns); boot_id $name") && [[ $now && $now != "$before" ]]
  }
  eventually 180 "$name is back" rebooted
}
