#!/usr/bin/env bash
# Servers that share an etcd, as provision.sh sets them up: on three machines that are namespaces of this test's own, on a
# bridge without an uplink, with Debian's etcd and etcdctl. Instead of `coracle`, systemd and apt there are programs that
# write down how they were called, and run etcd as its unit says. Needs root.
#
#   tests/check-provision.sh TOOLS_DIR
set -euo pipefail

tools=$(cd "$1" && pwd)
if [[ ! ${CHECK_PROVISION_WITHIN:-} ]]; then
  # The first process of all: with it everything ends.
  CHECK_PROVISION_WITHIN=1 exec timeout --kill-after=5 900 unshare --mount --net --pid --fork --mount-proc --kill-child --propagation private "$0" "$tools"
fi
examples=$(cd "$(dirname "$0")/../examples" && pwd)
mount -t tmpfs tmpfs /mnt
work=/mnt
network=198.18.0

fail() {
  printf 'tests/check-provision.sh: %s; it said\n%s\n' "$1" "$said" >&2
  exit 1
}
said=

# === What machines have

mkdir "$work/programs" "$work/release"
cp "$tools/etcd" "$tools/etcdctl" "$work/programs/"
program() { cat >"$1" && chmod +x "$1"; }
for name in dpkg-query modprobe sysctl chgrp; do program "$work/programs/$name" <<<'#!/bin/sh'; done
program "$work/programs/dpkg-query" <<<$'#!/bin/sh\nprintf installed'
# A unit is active while its process lives; only etcd's is a real one.
program "$work/programs/systemctl" <<'STUB'
#!/bin/bash
echo "systemctl $*" >>/run/calls
words=()
for word in "$@"; do [[ $word == -* ]] || words+=("$word"); done
unit=${words[1]:-}
pid() { cat "/run/$unit.pid" 2>/dev/null || echo none; }
alive() { [[ $(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$(pid)/status" 2>/dev/null) == [RSD] ]]; }
stop() {
  if alive; then kill -9 "$(pid)"; fi
  while alive; do sleep 0.05; done
}
# What the server makes of its flags, and of a token that it is given.
start_server() {
  local dir=/var/lib/coracle/server file=/etc/coracle/server-token.env
  mkdir -p "$dir"
  touch "$dir/store.db"
  if grep -q -e --join /etc/coracle/server.env; then touch "$dir/joined.json"; fi
  if [[ -e $file ]]; then
    echo "$(stat -c %a "$file") $(. "$file" && echo "$CORACLE_SERVER_TOKEN")" >/run/server-token
    . "$file"
    [[ $CORACLE_SERVER_TOKEN == K10* ]] || CORACLE_SERVER_TOKEN=K10$(printf 'ab%.0s' {1..32})::server:$CORACLE_SERVER_TOKEN
    echo "$CORACLE_SERVER_TOKEN" >"$dir/token"
  fi
}
start() {
  local file conditions begins=
  case $unit in
  coracle-etcd.service)
    conditions=$(sed -n 's/^ConditionPathExists.*=|//p' /etc/systemd/system/coracle-etcd.service)
    for file in $conditions; do if [[ -e $file ]]; then begins=1; fi; done
    if [[ $conditions && ! $begins ]]; then return 0; fi
    for file in /etc/coracle/etcd.env /etc/coracle/etcd-begin.env; do
      if [[ -e $file ]]; then eval "$(grep -v '^#' "$file" | sed 's/=\(.*\)/="\1"/')"; fi
    done
    install -d -m 0700 /var/lib/coracle-etcd
    setsid etcd $CORACLE_ETCD_ARGS $CORACLE_ETCD_BEGIN_ARGS </dev/null >>/run/etcd.log 2>&1 &
    ;;
  *) setsid sleep infinity </dev/null >/dev/null 2>&1 & ;;
  esac
  echo $! >"/run/$unit.pid"
  if [[ $unit == coracle-server.service ]]; then start_server; fi
}
case ${words[0]} in
is-active) alive ;;
start) alive || start ;;
stop) stop ;;
restart) stop && start ;;
esac
STUB
for name in coracle-cni coracle-shim coracle-oci; do program "$work/release/$name" <<<'#!/bin/sh'; done
program "$work/release/coracle" <<'STUB'
#!/bin/bash
echo "coracle $*" >>/run/calls
case "$1 ${2:-}" in
version*) echo coracle ;;
"store copy")
  systemctl is-active coracle-server.service && echo "a server runs" && exit 1
  if [[ -e /run/copy-fails ]]; then echo "the disk is full" && exit 1; fi
  set -a
  . /etc/coracle/etcd/etcdctl.env
  if [[ $(etcdctl get --keys-only /coracle/.cluster) ]]; then echo "/coracle in etcd is not empty" && exit 1; fi
  if [[ -e /run/copy-breaks ]]; then
    rm /run/copy-breaks
    etcdctl put /coracle/.cluster '{"isCopying":true}' >/dev/null
    # Its caller, and not that one's subshell.
    script=$PPID parent=$(sed -n 's/^PPid:\t//p' "/proc/$PPID/status")
    if grep -qz examples/provision.sh "/proc/$parent/cmdline"; then script=$parent; fi
    kill -TERM "$script"
    sleep 1
    exit 1
  fi
  echo "copied 7 objects" ;;
esac
STUB

# machine NUMBER: a network of its own, and nothing of this machine's configuration.
holders=()
machine() {
  local number=$1 dir=$work/machine$1
  mkdir -p "$dir"/{etc,usr-local,var-lib,run}
  cp -a /etc/passwd /etc/group /etc/ssl "$dir/etc/"
  cp -aL /etc/os-release "$dir/etc/"
  mkdir -p "$dir/run/systemd/system" "$dir/usr-local/sbin"
  cp "$work"/programs/* "$dir/usr-local/sbin/"
  unshare --mount --net --propagation private sleep infinity &
  holders[number]=$!
  until [[ $(readlink "/proc/${holders[number]}/ns/net") != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.05; done
  on "$number" sh -c "mount --bind $dir/etc /etc && mount --bind $dir/usr-local /usr/local && mount --bind $dir/var-lib /var/lib && mount --bind $dir/run /run"
  ip link add "port$number" type veth peer name eth0 netns "${holders[number]}"
  ip link set "port$number" master machines up
  on "$number" ip link set lo up
  on "$number" ip address add "$network.$number/24" dev eth0
  on "$number" ip link set eth0 up
}
on() {
  local number=$1
  shift
  nsenter --target "${holders[number]}" --mount --net -- "$@"
}

# === What is asked

# provision NUMBER [VARIABLE=VALUE...]: what it says is in $said.
provision() {
  local number=$1
  shift
  on "$number" env "$@" "$examples/provision.sh" "$work/release" >"$work/said" 2>&1 && said=$(<"$work/said") && return 0
  said=$(<"$work/said")
  return 1
}
refuses() {
  local expected=$1
  shift
  if provision "$@"; then fail "${*:2} was accepted"; fi
  [[ $said == *"$expected"* ]] || fail "${*:2}: expected '$expected'"
}
says() { [[ $said == *"$1"* ]] || fail "it did not say '$1'"; }
etcdctl_on() { on "$1" sh -c "set -a; . /etc/coracle/etcd/etcdctl.env; etcdctl $2 2>&1"; }
# members_are COUNT NUMBER: as machine NUMBER says; all have a vote, and what is written there is read on each.
members_are() {
  local expected=$1 list number deadline=$((SECONDS + 30))
  list=$(etcdctl_on "$2" "member list")
  [[ $(wc -l <<<"$list") == "$expected" && $list != *unstarted* && $list != *", true"* ]] || fail "other members: $list"
  # They may be choosing a leader.
  until etcdctl_on "$2" "put key value$SECONDS" >/dev/null; do ((SECONDS < deadline)) || fail "nothing can be written"; done
  list=$(etcdctl_on "$2" "get key")
  for ((number = 1; number <= expected; number++)); do
    [[ $(etcdctl_on "$number" "get key") == "$list" ]] || fail "member $number does not hold what the others do"
  done
}
calls() { on "$1" cat /run/calls; }
pids() { on "$1" sh -c 'cat /run/*.pid'; }

ip link set lo up
ip link add machines type bridge
ip link set machines up
for number in 1 2 3; do machine "$number"; done
all=$network.1,$network.2,$network.3
hash=$(printf 'ab%.0s' {1..32})
token=K10${hash}::server:0123456789abcdef
chosen=correct-horse-battery

# === Bad settings change nothing

first=(ROLE=server NODE_IP="$network.1" ETCD_MEMBERS="$all")
refuses "go with ROLE=server" 1 ROLE=up ETCD_MEMBERS="$all"
refuses "NODE_IP= is not in ETCD_MEMBERS" 1 ROLE=server ETCD_MEMBERS="$all"
refuses "is not in ETCD_MEMBERS" 1 "${first[@]}" ETCD_MEMBERS=$network.2
refuses "names $network.1 twice" 1 "${first[@]}" ETCD_MEMBERS="$all,$network.1"
refuses "db1 is no IPv4 address" 1 "${first[@]}" ETCD_MEMBERS="$all,db1"
refuses "is no address of this machine" 1 "${first[@]}" NODE_IP=$network.2
refuses "leave out --store" 1 "${first[@]}" SERVER_ARGS="--store etcd=http://$network.9:2379"
refuses "ETCD_CA is of no use" 1 ROLE=server ETCD_CA=/etc/passwd
refuses "does not hold a certificate and its key" 1 "${first[@]}" ETCD_CA=/etc/passwd
refuses "expected https://ADDRESS:PORT" 1 "${first[@]}" JOIN=$network.2
refuses "ETCD_CA is missing" 1 "${first[@]}" JOIN=https://$network.2:6443 TOKEN="$token"
refuses "'coracle token server'" 1 ROLE=server JOIN=https://$network.2:6443
refuses "of no use to a server without JOIN" 1 ROLE=server TOKEN="$token"
refuses "SERVER_ARGS: leave out --token" 1 "${first[@]}" SERVER_ARGS="--v 2 --token=$token"
refuses "TOKEN is none of a server" 1 "${first[@]}" TOKEN="too short"
refuses "TOKEN is none of a server" 1 ROLE=server JOIN=https://$network.2:6443 TOKEN="K10${hash}::abcdef.0123456789abcdef"
refuses "TOKEN is none of a server" 1 ROLE=server JOIN=https://$network.2:6443 TOKEN="$token'"
refuses "expected https://ADDRESS:PORT" 1 ROLE=agent SERVER="https://$network.1:6443,$network.2"
on 1 test ! -e /etc/coracle -a ! -e /run/calls || fail "something was changed"
echo "provision.sh: refuses what cannot work"

# === The first server moves from SQLite to etcd

provision 1 ROLE=server NODE_IP=$network.1 || fail "a server on SQLite failed"
on 1 grep -q etcd /etc/coracle/server.env && fail "etcd was not asked for"
on 1 test ! -e /etc/systemd/system/coracle-etcd.service || fail "etcd was not asked for"
refuses "would be lost" 1 JOIN=https://$network.2:6443 TOKEN="$token"
on 1 touch /run/copy-fails
refuses "the server goes on with SQLite: the disk is full" 1 "${first[@]}"
on 1 grep -q etcd /etc/coracle/server.env && fail "the server was told of an etcd that has nothing"
on 1 systemctl is-active coracle-server.service || fail "the server does not go on"
on 1 rm /run/copy-fails
on 1 touch /run/copy-breaks
if provision 1 "${first[@]}"; then fail "nothing was interrupted"; fi
on 1 test ! -e /run/copy-breaks || fail "nothing was interrupted"
on 1 systemctl is-active coracle-server.service || fail "the server does not go on"
on 1 grep -q etcd /etc/coracle/server.env && fail "the server was told of a part of a copy"
refuses "etcd has a part of a copy: delete it" 1 "${first[@]}"
advice=$(tail -n 1 <<<"$said")
said=$(on 1 sh -c "$advice") || fail "the advice is wrong: $advice"
# What was begun may begin once more, unless somebody else may have it.
on 1 systemctl stop coracle-etcd.service
on 1 rm -rf /var/lib/coracle-etcd
ip link set port3 down
refuses "$network.3 does not say whether it runs a member" 1 "${first[@]}"
ip link set port3 up
provision 1 "${first[@]}" TOKEN="$chosen" || fail "the move failed"
[[ $(on 1 cat /run/server-token) == "600 $chosen" ]] || fail "another token"
on 1 grep -rqF "$chosen" /etc/coracle && fail "the token is still there"
says "copied 7 objects"
flags="--store etcd=https://$network.1:2379,https://$network.2:2379,https://$network.3:2379 --etcd-cacert /etc/coracle/etcd/ca.crt"
on 1 grep -q -e "$flags" /etc/coracle/server.env || fail "other flags: $(on 1 cat /etc/coracle/server.env)"
calls 1 | grep -q "coracle store copy --from sqlite --to etcd=https://$network.1:2379,.* --etcd-key /etc/coracle/etcd/client.key" ||
  fail "other calls: $(calls 1)"
members_are 1 1
again_changes_nothing() {
  local before
  before=$(pids "$1")
  # As for somebody who has just looked at etcd.
  provision "$1" ETCDCTL_ENDPOINTS=https://127.0.0.1:1 ETCDCTL_KEY=/nowhere || fail "a second run failed"
  [[ $before == "$(pids "$1")" ]] || fail "a second run restarted something"
  says "coracle-etcd.service is running and up to date"
  says "coracle-server.service is running and up to date"
}
again_changes_nothing 1
refuses "not the one that this server keeps" 1 TOKEN="another-$chosen"
echo "provision.sh: a server moves from SQLite to etcd"

# === An etcd begins once

on 1 systemctl stop coracle-etcd.service
on 1 mv /var/lib/coracle-etcd /var/lib/lost
on 1 systemctl start coracle-etcd.service
sleep 2
on 1 test ! -e /var/lib/coracle-etcd/member/wal || fail "without its data the unit begins an empty etcd"
refuses "the data of its member in /var/lib/coracle-etcd is gone" 1
args=$(on 1 sh -c "sed -n 's/^[A-Z_]*_ARGS=//p' /etc/coracle/etcd.env /etc/coracle/etcd-begin.env 2>/dev/null | xargs")
read -ra args <<<"$args"
code=0
said=$(on 1 timeout 20 etcd "${args[@]}" 2>&1) || code=$?
[[ $code != 124 && $said == *"cannot fetch cluster info"* ]] || fail "without its data etcd begins an empty one"
on 1 rm -rf /var/lib/coracle-etcd
on 1 mv /var/lib/lost /var/lib/coracle-etcd
provision 1 || fail "with its data the first member does not start"
members_are 1 1
echo "provision.sh: a member without its data begins nothing"

# === Others join

cp "$work/machine1/etc/coracle/etcd/ca.pem" "$work/ca.pem"
joining=(ROLE=server JOIN="https://$network.1:6443" TOKEN="$token" ETCD_CA="$work/ca.pem" ETCD_MEMBERS="$all")
# As a run that was interrupted leaves it.
etcdctl_on 1 "member add $network.2 --peer-urls=https://$network.2:2380 --learner" >/dev/null
provision 2 "${joining[@]}" NODE_IP=$network.2 || fail "the second server failed"
members_are 2 2
provision 3 "${joining[@]}" NODE_IP=$network.3 || fail "the third server failed"
members_are 3 3
on 3 grep -q -e "--join https://$network.1:6443 --store etcd=https://$network.3:2379,https://$network.1:2379" /etc/coracle/server.env ||
  fail "other flags: $(on 3 cat /etc/coracle/server.env)"
[[ $(on 3 cat /run/server-token) == "600 $token" ]] || fail "another token"
# The server keeps it: after a rotation the old one must not be in its way.
on 3 test ! -e /etc/coracle/server-token.env || fail "the token is still there"
calls 3 | grep -q "store copy" && fail "a server that joins copied something"
for number in 1 2 3; do again_changes_nothing "$number"; done
echo "provision.sh: two servers join, and a second run changes nothing"

# === Nothing is open

for number in 1 2 3; do
  open=$(on "$number" ss -Hltn | awk '{ print $4 }' | sort | tr '\n' ' ')
  [[ $open == "$network.$number:2379 $network.$number:2380 " ]] || fail "it listens at $open"
  private=$(on "$number" find /etc/coracle \( -name '*.key' -o -name '*.pem' -o -name '*token*' \) -printf '%f %m\n' | sort | tr '\n' ' ')
  [[ $private == "ca.pem 600 client.key 600 member.key 640 "* && $private != *" 64[14]"* ]] || fail "readable: $private"
done
for url in "http://$network.1:2379/health" "https://$network.1:2379/health" "https://$network.1:2380/members"; do
  if said=$(on 2 curl -sSk --max-time 5 "$url" 2>&1); then fail "$url answers somebody without a certificate"; fi
done
curl=(on 2 curl -fsS --max-time 5 --cacert /etc/coracle/etcd/ca.crt --cert /etc/coracle/etcd/client.crt --key /etc/coracle/etcd/client.key)
said=$("${curl[@]}" "https://$network.1:2379/health") || fail "etcd does not answer a server"
echo "provision.sh: etcd answers servers alone"

# === What goes wrong later

on 1 openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /run/k -subj /CN=x -days 3650 -out /etc/coracle/etcd/member.crt 2>/dev/null
key=$(on 1 sha256sum /etc/coracle/etcd/member.key)
provision 1 || fail "a certificate of somebody else stopped it"
said=$("${curl[@]}" "https://$network.1:2379/health" 2>&1) || fail "etcd does not show the new certificate"
[[ $key == "$(on 1 sha256sum /etc/coracle/etcd/member.key)" ]] || fail "the key is another one"

on 2 systemctl stop coracle-etcd.service
on 2 rm -rf /var/lib/coracle-etcd
refuses "but its data in /var/lib/coracle-etcd is gone" 2
etcdctl_on 1 "member remove $(etcdctl_on 1 "member list" | sed -n "s/, started, $network.2,.*//p")" >/dev/null
provision 2 || fail "the second server did not come back"
members_are 3 2
on 1 systemctl stop coracle-etcd.service
on 1 mv /var/lib/coracle-etcd /var/lib/lost
refuses "etcd runs already, and this machine has no data of it" 1
on 1 mv /var/lib/lost /var/lib/coracle-etcd
provision 1 || fail "the first member did not start again"
members_are 3 1
echo "provision.sh: lost data and wrong certificates are told and mended"

# === Back to what it was

uninstall() {
  said=$(on "$1" /usr/local/lib/coracle/provision.sh --uninstall 2>&1) || fail "machine $1 could not be taken back"
  [[ $said != *warning* ]] || fail "machine $1 did not leave etcd"
  on "$1" test ! -e /etc/coracle -a ! -e /var/lib/coracle-etcd -a ! -e /etc/systemd/system/coracle-etcd.service || fail "something is left"
  on "$1" systemctl is-active coracle-etcd.service && fail "etcd runs"
  return 0
}
stays() {
  if said=$(on "$1" /usr/local/lib/coracle/provision.sh --uninstall 2>&1); then fail "machine $1 was taken back"; fi
  says "so nothing was deleted"
  on "$1" test -e /var/lib/coracle-etcd/member/wal -a -e /etc/coracle/server.env -a -x /usr/local/bin/coracle || fail "something was deleted"
  on "$1" systemctl is-active coracle-server.service || fail "the server does not go on"
}
# Nobody answers; then somebody does, and would be one of two without this one.
for number in 1 2 3; do on "$number" systemctl stop coracle-etcd.service; done
stays 3
for number in 2 3; do on "$number" systemctl start coracle-etcd.service; done
stays 3
on 1 systemctl start coracle-etcd.service
members_are 3 1
uninstall 3
members_are 2 1
uninstall 2
members_are 1 1
uninstall 1
echo "provision.sh: servers leave etcd one after another"
