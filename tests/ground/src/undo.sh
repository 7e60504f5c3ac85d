#!/bin/bash
# Undoes the ground of a test as soon as its owner has let it go or has ended, by whatever signal. `Ground` starts one
# beside each, and one for each that it finds without an owner: whoever holds the lock on DIR/owner owns the ground.
#
#   undo.sh DIR      the last part of DIR is the name of all that is removed: nothing else is touched
#
# Standard error names what had to be ended or could not be removed. Every wait here has an end.
set -u
# It outlives whoever signals the test's terminal or reads what this says.
trap '' HUP INT QUIT TERM PIPE
dir=$1
name=${dir##*/}
owner=$PPID

exec 9<"$dir/owner" || exit 0
flock 9
# Without that file the ground is to stay; with another one it is somebody else's, under the same name.
[ /proc/self/fd/9 -ef "$dir/owner" ] || exit 0

# In hierarchies of version 1, each one below a directory of its own, as in that of version 2.
cgroups() {
  find /sys/fs/cgroup -mindepth 1 -maxdepth 2 -type d -name "$name" 2>/dev/null
}

# Those whose network namespace is pinned in the ground. Never those of the machine's own, or of this process's.
in_namespaces() {
  stat -L -c '%d:%i %n' "/run/netns/$name"-* "$dir"/ns/* /proc/1/ns/net "/proc/$$/ns/net" /proc/[0-9]*/ns/net 2>/dev/null |
    awk -v own="/proc/$$/ns/net" '
      $2 == "/proc/1/ns/net" || $2 == own { delete pins[$1] }
      $2 !~ "^/proc/" { pins[$1] }
      $2 ~ "^/proc/" && $1 in pins { split($2, part, "/"); print part[3] }'
}

# What runs in its namespaces and cgroups, or logs below its directory, as shims do; but not whoever lets it go.
inhabitants() {
  {
    in_namespaces
    for cgroup in $(cgroups); do
      find "$cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null
    done
    find /proc/[0-9]*/fd/2 -lname "$dir/*" 2>/dev/null | cut -d/ -f3
  } | sort -u | grep -vx -e "$$" -e "$owner"
}

tries=50
while pids=$(inhabitants) && [ "$tries" -gt 0 ]; do
  for pid in $pids; do
    [ "$tries" -lt 50 ] || echo "ends PID $pid, $(cat "/proc/$pid/comm")" >&2
    kill -KILL "$pid" 2>/dev/null
  done
  tries=$((tries - 1))
  sleep 0.1
done

awk -v below="$dir/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r point; do
  # A space stands there as \040.
  umount -l "$(printf '%b' "$point")"
done
for pin in "/run/netns/$name"-*; do
  [ -e "$pin" ] && ip netns delete "${pin##*/}"
done
tries=50
while left=$(cgroups) && [ -n "$left" ] && [ "$tries" -gt 0 ]; do
  # The kernel lets go of one a moment after its last process has ended.
  for cgroup in $left; do
    find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null
  done
  [ -z "$(cgroups)" ] || sleep 0.1
  tries=$((tries - 1))
done
[ -z "$(cgroups)" ] || echo "could not remove the cgroups" "$(cgroups)" >&2
# Never into what is still mounted. What cannot be removed now is not tried again by every later test.
rm -rf --one-file-system "$dir" || rm -f "$dir/owner"
