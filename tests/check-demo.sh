#!/usr/bin/env bash
# What `make run` and `make stop` say, end and leave alone, in namespaces of this test's own: instead of `coracle` and
# `kubectl` a program that writes down how it was called. No cluster is started. Needs root.
set -euo pipefail

if [[ ! ${CHECK_DEMO_WITHIN:-} ]]; then
  CHECK_DEMO_WITHIN=1 exec unshare --mount --net --propagation private "$0"
fi
unset ISOLATED
demo=$(cd "$(dirname "$0")/../examples" && pwd)/demo.sh
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
work=/run/check-demo
mkdir -p "$work/bin" /run/netns
cat >"$work/bin/coracle" <<'STUB'
#!/bin/sh
echo "$0 $*" >>/run/check-demo/calls
case $1 in reset) rm -r "$3" ;; esac
STUB
chmod +x "$work/bin/coracle"
ln -s coracle "$work/bin/kubectl"

# demo ACTION EXPECTED: its output has these words.
demo() {
  : >"$work/calls"
  "$demo" "$1" "$work/bin" "$work/bin" "$work" >"$work/said" 2>&1 || true
  grep -qF -e "$2" "$work/said" || fail "$1 did not say: $2"
}
called() { grep -qF -e "$1" "$work/calls"; }
fail() {
  echo "tests/check-demo.sh: $1; it said" >&2
  cat "$work/said" "$work/calls" >&2
  exit 1
}
# started DIRECTORY: as after a start whose process has ended since.
started() {
  mkdir -p "$1/server"
  touch "$1/demo.log"
}

demo stop "nothing was running"
[[ ! -s $work/calls ]] || fail "stop without a cluster called something"

mkdir -p /var/lib/coracle/server
demo stop "nothing was running"
[[ -d /var/lib/coracle/server ]] || fail "stop removed what it had not started"
demo start "was not started here"

started /var/lib/coracle-demo
demo stop "nothing is left"
called "reset --data-dir /var/lib/coracle-demo" || fail "stop left the isolated cluster"
called "--delete-data --delete-local-volumes" || fail "stop left what pods had written to volumes"
[[ -d /var/lib/coracle/server && ! -e /var/lib/coracle-demo ]] || fail "stop mixed the clusters up"
[[ ! -e /run/netns/coracle-demo ]] || fail "stop left the namespace"

started /var/lib/coracle
started /var/lib/coracle-demo
ISOLATED=1 demo stop "ending the isolated cluster"
[[ -d /var/lib/coracle && ! -e /var/lib/coracle-demo ]] || fail "stop with ISOLATED=1 ended the other cluster"

mkdir -p /run/coracle
echo $$ >/run/coracle/demo.pid
demo start "it is running already (PID $$)"
demo start "export KUBECONFIG=/var/lib/coracle/admin.kubeconfig"
mkdir -p /run/coracle-demo
mv /run/coracle/demo.pid /run/coracle-demo/
ISOLATED=1 demo start "export CORACLE_DATA_DIR=/var/lib/coracle-demo CORACLE_RUN_DIR=/run/coracle-demo"
rm /run/coracle-demo/demo.pid
demo stop "ending the plain cluster"
[[ ! -e /var/lib/coracle ]] || fail "stop left the plain cluster"
echo "make run and make stop: as they should be"
