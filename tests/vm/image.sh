#!/usr/bin/env bash
# Builds the disk that the test VMs boot: Debian with its cloud kernel, systemd and SSH, nothing of Coracle.
#
#   tests/vm/image.sh OUT_DIR [SUITE [PACKAGE...]]
#
# writes OUT_DIR/disk.raw (ext4), OUT_DIR/vmlinuz, OUT_DIR/initrd and the key pair OUT_DIR/id. Nothing is done when they
# are newer than this script. Debian's packages come by apt's ordinary configuration; the VMs themselves have no network
# but the test's.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
suite=${2:-bookworm}
self=$(readlink -f "$0")
if [[ $out/disk.raw -nt $self && $out/initrd -nt $self ]]; then
  exit 0
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/coracle-vm-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root

# What a bare cloud image has, what a node needs (provision.sh installs it where there is a network), and SSH.
packages=(systemd-sysv udev dbus kmod iproute2 procps less openssh-server curl ca-certificates iputils-ping util-linux
  linux-image-cloud-amd64 initramfs-tools zstd iptables nftables conntrack apparmor xz-utils
  "${@:3}")

[[ -e $out/id ]] || ssh-keygen -q -t ed25519 -N '' -C coracle-test -f "$out/id"

# Only what the disk's controller and file system need: unpacking is slow under emulation.
cat >"$work/initramfs" <<'EOF'
MODULES=list
COMPRESS=lz4
EOF
# shellcheck disable=SC2016 # the hook's shell expands $1, not this one
mmdebstrap --mode=root --variant=minbase --include="$(IFS=, && echo "${packages[*]}"),lz4" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"' \
  --essential-hook="cp '$work/initramfs' \"\$1/etc/initramfs-tools/conf.d/coracle\"" \
  --essential-hook='printf "virtio_pci\nvirtio_blk\next4\n" >"$1/etc/initramfs-tools/modules"' \
  "$suite" "$root" >"$work/log" 2>&1 || {
  tail -n 30 "$work/log" >&2
  exit 1
}

# The address comes on the kernel's command line: coracle.address=198.18.0.1/24 coracle.gateway=198.18.0.254.
cat >"$root/usr/local/sbin/test-network" <<'EOF'
#!/bin/sh
set -eu
for word in $(cat /proc/cmdline); do
  case $word in
  coracle.address=*) address=${word#*=} ;;
  coracle.gateway=*) gateway=${word#*=} ;;
  esac
done
# The driver may still be on its way; bridges and the like have no device.
tries=0
until link=$(ls -d /sys/class/net/*/device 2>/dev/null | head -n 1) && [ -n "$link" ]; do
  tries=$((tries + 1))
  [ "$tries" -lt 300 ] || exit 1
  sleep 0.1
done
link=${link%/device}
ip address replace "$address" dev "${link##*/}"
ip link set "${link##*/}" up
ip route replace default via "$gateway"
EOF
chmod 0755 "$root/usr/local/sbin/test-network"
cat >"$root/etc/systemd/system/test-network.service" <<'EOF'
[Unit]
Description=The address that the test has chosen
Wants=network-online.target
Before=network-online.target ssh.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/test-network

[Install]
WantedBy=multi-user.target
EOF
chroot "$root" systemctl -q enable test-network.service ssh.service
chroot "$root" systemctl -q mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer dpkg-db-backup.timer getty@tty1.service serial-getty@ttyS0.service
# As after provision.sh has installed it: Debian's own service does not run.
if [[ -e $root/lib/systemd/system/etcd.service ]]; then chroot "$root" systemctl -q disable etcd.service; fi
install -d -m 0700 "$root/root/.ssh"
install -m 0600 "$out/id.pub" "$root/root/.ssh/authorized_keys"
printf 'UseDNS no\n' >"$root/etc/ssh/sshd_config.d/test.conf"
printf '/dev/vda / ext4 defaults,noatime 0 0\n' >"$root/etc/fstab"
printf 'localhost\n' >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
: >"$root/etc/machine-id"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*

# Nothing is new since the last boot: no caches to make.
touch "$root/etc/.updated" "$root/var/.updated"

cp -L "$root"/boot/vmlinuz-* "$out/vmlinuz"
cp -L "$root"/boot/initrd.img-* "$work/initrd"
truncate -s 3G "$work/disk.raw"
mke2fs -q -t ext4 -E lazy_itable_init=1 -d "$root" "$work/disk.raw"
cp --sparse=always "$work/disk.raw" "$out/disk.raw"
mv "$work/initrd" "$out/initrd"
touch "$out/disk.raw" "$out/initrd"
echo "built $out/disk.raw ($(du -h "$out/disk.raw" | cut -f1)), kernel $(basename "$root"/boot/vmlinuz-*)"
