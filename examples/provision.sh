#!/usr/bin/env bash
# Makes a bare Debian 12 or 13 machine a server, a node, or both; upgrades it; takes it back. Ubuntu 24.04 should do, and
# has not been tried.
#
#   ROLE=server                                            examples/provision.sh [FROM]
#   ROLE=agent SERVER=https://ADDRESS:6443 TOKEN=K10...    examples/provision.sh [FROM]
#   ROLE=up                                                examples/provision.sh [FROM]
#   ROLE=server ETCD_MEMBERS=...                           examples/provision.sh [FROM]    several servers: docs/servers.md
#   examples/provision.sh --uninstall
#
# FROM is a release archive (make dist) or a directory with the binaries [default: where this script was unpacked].
# Run it again to upgrade or to change settings: only services that changed are restarted, and no pod is stopped.
# A role, server or token that was given once need not be given again.
#
#   TOKEN_FILE    read the token from this file
#   NODE_IP       the address other machines reach this one at [default: that of the default route]
#   NODE_NAME     the node's name [default: the host name]
#   SERVER        for agents: one server, or several with commas between them
#   SERVER_ARGS, AGENT_ARGS    more flags of `coracle server` and `coracle agent` (see --help of both); ROLE=up has both
#   REGISTRIES    a registries.yaml to install (mirrors and credentials of registries; see examples/node/registries.yaml)
#
# Servers that share an etcd, each with a member of it on its own machine (Debian's etcd-server, with TLS):
#
#   ETCD_MEMBERS  the addresses (NODE_IP) of all of them with commas between, the same on each. A server that has had its
#                 objects in SQLite takes them along
#   JOIN, TOKEN   on all but the first: https://ADDRESS:6443 of a server, and what `coracle token server` prints there;
#                 TOKEN on the first is one of your own choice (16 characters at least)
#   ETCD_CA       on all but the first: a copy of the first one's /etc/coracle/etcd/ca.pem. Who has it has the cluster
#   ETCD_ARGS     more flags of etcd
#   FORCE=1       take a machine back that the other members do not let go; begin an etcd though others do not answer
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

etc=/etc/coracle
bin_dir=/usr/local/bin
lib_dir=/usr/local/lib/coracle
doc_dir=/usr/local/share/coracle
unit_dir=/etc/systemd/system
modules_file=/etc/modules-load.d/coracle.conf
sysctl_file=/etc/sysctl.d/90-coracle.conf
binaries=(coracle coracle-cni coracle-shim coracle-oci)
packages=(iptables kmod iproute2 ca-certificates libseccomp2)
modules=(overlay veth bridge br_netfilter nf_conntrack nf_nat xt_comment xt_conntrack xt_statistic xt_mark xt_nat
  xt_addrtype xt_MASQUERADE xt_recent nf_conntrack_netlink vxlan)
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=examples/provision-etcd.sh
source "$here/provision-etcd.sh"

say() { printf '==> %s\n' "$*"; }
die() {
  printf 'provision.sh: %s\n' "$*" >&2
  exit 1
}
usage() {
  sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
  exit "$1"
}

# changed WHAT: remembers that files of the node's parts are new.
restart=()
restart_later() {
  local unit
  for unit in "${restart[@]}"; do [[ $unit != "$1" ]] || return 0; done
  restart+=("$1")
}

# put MODE SOURCE TARGET: installs by rename, so that whoever runs the old file keeps it. Fails if nothing changed.
put() {
  if cmp -s "$2" "$3"; then return 1; fi
  install -D -m "$1" "$2" "$3.new"
  mv -f "$3.new" "$3"
}

# put_text MODE TARGET: the same with standard input.
put_text() {
  local staged
  staged=$(mktemp "$work/text.XXXXXX")
  cat >"$staged"
  put "$1" "$staged" "$2"
}

# === Before anything is changed

look_at_machine() {
  [[ $(id -u) == 0 ]] || die "only root can do this: sudo $0"
  [[ -d /run/systemd/system ]] || die "this machine does not run systemd: $1"
  local id="" version=""
  if [[ -r /etc/os-release ]]; then
    # shellcheck disable=SC1091 # the machine's own
    id=$(. /etc/os-release && echo "${ID:-}")
    # shellcheck disable=SC1091 # the machine's own
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  case $id in
  debian | ubuntu) ;;
  *) say "warning: made for Debian 12 and 13; this is '${id:-unknown}' ${version}" ;;
  esac
  case $(uname -m) in
  x86_64 | aarch64) ;;
  *) die "no release for $(uname -m): build the binaries and give their directory" ;;
  esac
}

installed_role() {
  local role
  for role in server agent up; do
    if [[ -e $etc/$role.env ]]; then echo "$role"; fi
  done
}

choose_role() {
  local known
  known=$(installed_role)
  if [[ ! $role ]]; then
    [[ $known ]] || die "ROLE is missing: server (control plane), agent (node that joins a server) or up (both on one machine)"
    role=${known//$'\n'/ }
  fi
  local word
  for word in $role; do
    case $word in
    server | agent | up) ;;
    *) die "ROLE=$word: expected server, agent or up" ;;
    esac
    if [[ $known && $word == up && $known != up ]] || [[ $word != up && $known == *up* ]]; then
      die "this machine is '${known//$'\n'/ }' already; take it back first: $0 --uninstall"
    fi
  done
}

# Finds the binaries: an archive is unpacked.
find_release() {
  local candidate
  if [[ $from && -f $from ]]; then
    mkdir "$work/release"
    tar -xf "$from" -C "$work/release" --strip-components=1 || die "$from is no release archive (tar could not unpack it)"
    release=$work/release
  elif [[ $from ]]; then
    [[ -d $from ]] || die "$from does not exist; expected a release archive or a directory with the binaries"
    release=$(cd "$from" && pwd)
  else
    for candidate in "$here/.." "$here/../target"; do
      if [[ -x $candidate/bin/coracle ]]; then release=$(cd "$candidate" && pwd) && break; fi
    done
    [[ ${release:-} ]] || die "no binaries beside this script: name a release archive or a directory with the binaries"
  fi
  programs=$release
  if [[ -x $release/bin/coracle ]]; then programs=$release/bin; fi
  local name
  for name in "${binaries[@]}"; do
    [[ -x $programs/$name ]] || die "$release holds no $name (expected in it or in its bin/)"
  done
  units=$here/systemd
  if [[ -d $release/examples/systemd ]]; then units=$release/examples/systemd; fi
  [[ -e $units/coracle-agent.service ]] || die "no systemd units in $units"
  if [[ -e $release/SHA256SUMS ]]; then
    (cd "$release" && sha256sum --quiet -c SHA256SUMS) || die "$release is damaged: checksums do not match"
  fi
}

check_settings() {
  [[ -z $token_file || -r $token_file ]] || die "TOKEN_FILE=$token_file cannot be read"
  if [[ $token_file ]]; then token=$(<"$token_file"); fi
  check_etcd_settings
  check_token
  [[ -z $registries || -r $registries ]] || die "REGISTRIES=$registries cannot be read"
  if [[ " $role " == *" agent "* ]]; then
    if [[ ! $server ]]; then die "SERVER is missing: https://ADDRESS:6443 of the server"; fi
    local one='https://[^/,]+:[0-9]+/?'
    if [[ ! $server =~ ^$one(,$one)*$ ]]; then die "SERVER=$server: expected https://ADDRESS:PORT"; fi
    if [[ ! $token && ! -e $etc/token.env && ! -e /var/lib/coracle/agent/pki ]]; then
      die "TOKEN is missing: run 'coracle token create' on the server"
    fi
    reach_server
  fi
}

# Whether the server has what it needs of its token, below its usual --data-dir.
keeps_server_token() {
  local dir=/var/lib/coracle/server
  [[ -e $dir/token ]] && [[ ! $join || -e $dir/joined.json ]]
}

# That a token is not given in vain.
check_kept_token() {
  local kept
  if ! keeps_server_token; then return 0; fi
  kept=$(</var/lib/coracle/server/token)
  [[ $kept == "$token" || $kept == *::server:"$token" ]] ||
    die "TOKEN is not the one that this server keeps: 'coracle token server' prints that, and docs/adr/0020 says how it is changed"
}

# Servers have one form and nodes another.
check_token() {
  if [[ " $server_args " =~ [[:space:]]--token[[:space:]=] ]]; then
    die "SERVER_ARGS: leave out --token, which everybody on this machine could read, and give it as TOKEN"
  fi
  if [[ $role == server && $join && ! $token && ! -e $etc/server-token.env ]] && ! keeps_server_token; then
    die "TOKEN is missing: run 'coracle token server' on a server"
  fi
  if [[ ! $token ]]; then return 0; fi
  if [[ $role == server ]]; then
    check_kept_token
    if [[ ! $join ]] && ! has_etcd && [[ $server_args != *--store*etcd=* ]]; then
      die "TOKEN is of no use to a server without JOIN=https://ADDRESS:6443 of another one, or an etcd that others can share"
    fi
    # The first server's may be a secret of somebody's choice. It becomes a quoted line of a file that systemd reads.
    if [[ ! $join && $token != K10* && $token =~ ^[[:graph:]]{16,256}$ && $token != *[\'\\]* ]]; then return 0; fi
    if [[ ! $token =~ ^K10[0-9a-f]{64}::server:[[:graph:]]{16,256}$ || $token == *[\'\\]* ]]; then
      die "TOKEN is none of a server: expected K10<64 hex digits>::server:<secret>, as 'coracle token server' on a server prints it"
    fi
  elif [[ ! $token =~ ^K10[0-9a-f]{64}::[a-z0-9]{6}\.[a-z0-9]{16}$ ]]; then
    die "TOKEN is none: expected K10<64 hex digits>::<id>.<secret>, as 'coracle token create' on the server prints it"
  fi
}

# Sends nothing; a server that is not up yet is no reason to stop: the agent keeps trying.
reach_server() {
  local one address
  for one in ${server//,/ }; do
    address=${one#https://}
    address=${address%/}
    if timeout 5 bash -c "exec 3<>/dev/tcp/${address%:*}/${address##*:}" 2>/dev/null; then return 0; fi
  done
  say "warning: nothing answers at ${server//,/, } yet; the node keeps trying to join"
}

# === What is changed

install_packages() {
  local package missing=()
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing packages: ${missing[*]}"
  hold_package_etcd "${missing[@]}"
  if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$work/apt.log" 2>&1; then
    release_package_etcd "${missing[@]}"
    tail -n 15 "$work/apt.log" >&2
    die "apt-get could not install ${missing[*]}: see above"
  fi
  release_package_etcd "${missing[@]}"
}

prepare_kernel() {
  local module absent=()
  printf '%s\n' "${modules[@]}" | put_text 0644 "$modules_file" || true
  for module in "${modules[@]}"; do
    modprobe -q "$module" 2>/dev/null || [[ -d /sys/module/$module ]] || absent+=("$module")
  done
  # Built in, or a kernel without it: `coracle check` knows which of them pods cannot do without.
  if ((${#absent[@]})); then say "kernel modules not found (built in?): ${absent[*]}"; fi
  if [[ ! -e $etc/sysctl.before ]]; then
    sysctl -e net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables fs.inotify.max_user_instances \
      fs.inotify.max_user_watches kernel.keys.maxkeys 2>/dev/null | put_text 0644 "$etc/sysctl.before" || true
  fi
  put_text 0644 "$sysctl_file" <<'EOF' || true
# Pods talk through this machine, and to Services of pods on the same bridge.
net.ipv4.ip_forward = 1
net.bridge.bridge-nf-call-iptables = 1
# Every pod with tail -f or a watching program takes one; the default of 128 is for one desktop user.
fs.inotify.max_user_instances = 8192
fs.inotify.max_user_watches = 524288
# Each container has a session keyring.
kernel.keys.maxkeys = 10000
EOF
  sysctl -q -e -p "$sysctl_file" >/dev/null || die "the kernel refuses settings of $sysctl_file"
}

install_programs() {
  local name role_unit
  for name in "${binaries[@]}"; do
    if put 0755 "$programs/$name" "$bin_dir/$name"; then
      # The agent takes the shim and its helper as they are when it starts.
      for role_unit in $role; do
        [[ $role_unit == server && $name != coracle ]] || restart_later "coracle-$role_unit.service"
      done
    fi
  done
  put 0755 "$units/hold-cgroup" "$lib_dir/hold-cgroup" || true
  put 0755 "$here/provision.sh" "$lib_dir/provision.sh" || true
  put 0644 "$here/provision-etcd.sh" "$lib_dir/provision-etcd.sh" || true
  for name in README.md LICENSE LICENSES.txt; do
    if [[ -e $release/$name ]]; then put 0644 "$release/$name" "$doc_dir/$name" || true; fi
  done
}

install_units() {
  local word unit
  wanted=()
  for word in $role; do wanted+=("coracle-$word.service"); done
  for unit in coracle.slice coracle-pods.service coracle-etcd.service "${wanted[@]}"; do
    if [[ $unit == coracle-pods.service && $role == server ]]; then continue; fi
    if [[ $unit == coracle-etcd.service ]] && ! has_etcd; then continue; fi
    if put 0644 "$units/$unit" "$unit_dir/$unit"; then
      reload=1
      # coracle-pods.service must go on: pods live in it. A new text is for the next boot.
      case $unit in coracle-server.service | coracle-etcd.service | coracle-agent.service | coracle-up.service) restart_later "$unit" ;; esac
    fi
  done
}

# Settings that are not given stay as they are: what was given last is kept in $etc/settings.
settings=(server node_ip node_name server_args agent_args join etcd_members etcd_args)
load_settings() {
  local name
  if [[ ! -e $etc/settings ]]; then return 0; fi
  for name in "${settings[@]}"; do
    if [[ ! ${!name} ]]; then
      printf -v "$name" %s "$(sed -n "s/^$name=//p" "$etc/settings")"
    fi
  done
}

write_settings() {
  local word name servers=${server//\/,/,} node_flags=() server_flags=()
  for name in "${settings[@]}"; do
    [[ ${!name} != *$'\n'* ]] || die "${name^^} holds a line break"
    printf '%s=%s\n' "$name" "${!name}"
  done | put_text 0600 "$etc/settings" || true
  if [[ $registries ]]; then
    if put 0600 "$registries" "$etc/registries.yaml"; then restart_nodes; fi
  fi
  if [[ $node_ip ]]; then
    node_flags+=(--node-ip "$node_ip")
    server_flags+=(--advertise-address "$node_ip")
  fi
  if [[ $join ]]; then server_flags+=(--join "${join%/}"); fi
  if has_etcd; then server_flags+=("$(etcd_flags --store)"); fi
  if [[ $node_name ]]; then node_flags+=(--node-name "$node_name"); fi
  if [[ -e $etc/registries.yaml ]]; then node_flags+=(--registries "$etc/registries.yaml"); fi
  for word in $role; do
    case $word in
    server) flags server "${server_flags[@]}" "$server_args" ;;
    agent) flags agent --server "${servers%/}" "${node_flags[@]}" "$agent_args" ;;
    up) flags up "${server_flags[@]}" "${node_flags[@]}" "$server_args" "$agent_args" ;;
    esac
  done
  # Not in agent.env or server.env: it may be shown, and is of no use once the machine has its certificates.
  if [[ $token && $role == server ]]; then
    printf "CORACLE_SERVER_TOKEN='%s'\n" "$token" | put_text 0600 "$etc/server-token.env" || true
    if ! keeps_server_token; then restart_later coracle-server.service; fi
  elif [[ $token ]]; then
    printf 'CORACLE_TOKEN=%s\n' "$token" | put_text 0600 "$etc/token.env" || true
  fi
}

restart_nodes() {
  local word
  for word in $role; do
    if [[ $word != server ]]; then restart_later "coracle-$word.service"; fi
  done
}

# flags COMMAND FLAG...: what its unit adds to the command line.
flags() {
  local command=$1
  shift
  if printf '# Written by provision.sh: flags of coracle %s\nCORACLE_%s_ARGS=%s\n' "$command" "${command^^}" "$*" |
    put_text 0644 "$etc/$command.env"; then
    restart_later "coracle-$command.service"
  fi
}

start_services() {
  local unit
  if [[ ${reload:-} ]]; then systemctl daemon-reload; fi
  systemctl -q enable "${wanted[@]}"
  for unit in "${wanted[@]}"; do
    if ! systemctl -q is-active "$unit"; then
      say "starting $unit"
      systemctl start "$unit" || failed "$unit"
    elif [[ " ${restart[*]} " == *" $unit "* ]]; then
      say "restarting $unit (pods keep running)"
      systemctl restart "$unit" || failed "$unit"
    else
      say "$unit is running and up to date"
    fi
  done
  server_is_stopped=
  # With another token after a rotation it would not start.
  if keeps_server_token; then rm -f "$etc/server-token.env"; fi
}

failed() {
  journalctl -u "$1" -n 20 --no-pager -o cat >&2 || true
  die "$1 does not start: see above, or 'journalctl -u $1'"
}

check_machine() {
  [[ $role != server ]] || return 0
  if ! "$programs/coracle" check >"$work/check" 2>&1; then
    grep -E '^(FAIL|coracle:)' "$work/check" >&2 || cat "$work/check" >&2
    die "this machine cannot be a node: see above"
  fi
}

closing_words() {
  "$bin_dir/coracle" version
  case " $role " in
  *" server "* | *" up "*)
    echo "kubeconfig:   /var/lib/coracle/admin.kubeconfig"
    echo "more nodes:   coracle token create"
    if has_etcd; then echo "more servers: coracle token server, and $etcd_dir/ca.pem"; fi
    ;;
  *) echo "this node joins its server; there: kubectl get nodes" ;;
  esac
}

provision() {
  look_at_machine "start the programs by hand, as README.md says under 'Several machines'"
  choose_role
  load_settings
  check_settings
  if [[ $from == *.xz ]]; then packages+=(xz-utils); fi
  if has_etcd; then packages+=("${etcd_packages[@]}"); fi
  install_packages
  find_release
  mkdir -p "$etc"
  prepare_kernel
  check_machine
  install_programs
  install_units
  if has_etcd; then
    set_up_etcd
    move_to_etcd
  fi
  write_settings
  start_services
  closing_words
}

# === Back to what it was

uninstall() {
  look_at_machine "this script has installed nothing here; 'coracle reset --delete-data' takes back a node that was started by hand"
  local unit name left=() data=(/var/lib/coracle) volumes=/var/lib/coracle/agent/storage
  if [[ -e $unit_dir/coracle-etcd.service ]]; then
    load_settings
    leave_etcd
  fi
  say "stopping services and pods"
  for unit in coracle-up coracle-agent coracle-server; do
    if [[ -e $unit_dir/$unit.service ]]; then
      systemctl -q disable "$unit.service" 2>/dev/null || true
      systemctl stop "$unit.service" || true
    fi
  done
  # With the agent gone nothing starts them again.
  if [[ -e $unit_dir/coracle-pods.service && -x $bin_dir/coracle ]]; then
    "$bin_dir/coracle" reset --cgroup-root /coracle.slice/coracle-pods.service --delete-data >/dev/null ||
      left+=("parts of pods")
    systemctl stop coracle-pods.service || true
  fi
  if [[ -e $unit_dir/coracle-etcd.service ]]; then
    systemctl -q disable coracle-etcd.service 2>/dev/null || true
    systemctl stop coracle-etcd.service || true
  fi
  say "removing files"
  for name in coracle-up.service coracle-agent.service coracle-server.service coracle-etcd.service coracle-pods.service coracle.slice; do
    if [[ -e $unit_dir/$name ]]; then rm -f "$unit_dir/$name"; fi
  done
  systemctl stop coracle.slice 2>/dev/null || true
  systemctl daemon-reload
  systemctl reset-failed 'coracle*' 2>/dev/null || true
  for name in "${binaries[@]}"; do rm -f "$bin_dir/$name"; done
  if [[ -e $etc/sysctl.before ]]; then sysctl -q -e -p "$etc/sysctl.before" >/dev/null 2>&1 || true; fi
  # What pods have written to persistent volumes is their users'; reset has left nothing else.
  if [[ -d $volumes && -n $(ls -A "$volumes") ]]; then
    data=()
    say "data of persistent volumes stays in $volumes"
  fi
  rm -rf "$etc" "$doc_dir" "$lib_dir" "${data[@]}" "$etcd_data" /run/coracle "$modules_file" "$sysctl_file"
  for name in "$doc_dir" "$lib_dir" "$etc" "${data[@]}" "$etcd_data" /run/coracle; do
    [[ ! -e $name ]] || left+=("$name")
  done
  ((${#left[@]} == 0)) || die "could not remove: ${left[*]}"
  say "nothing of Coracle is left; packages stay installed: ${packages[*]}"
}

case ${1:-} in
-h | --help) usage 0 ;;
--uninstall) action=uninstall ;;
-*) usage 64 >&2 ;;
*) action=provision ;;
esac
[[ $# -le 1 ]] || usage 64 >&2
role=${ROLE:-} server=${SERVER:-} token=${TOKEN:-} token_file=${TOKEN_FILE:-} registries=${REGISTRIES:-}
node_ip=${NODE_IP:-} node_name=${NODE_NAME:-} server_args=${SERVER_ARGS:-} agent_args=${AGENT_ARGS:-} from=${1:-}
join=${JOIN:-} etcd_members=${ETCD_MEMBERS:-} etcd_ca=${ETCD_CA:-} etcd_args=${ETCD_ARGS:-} others=()
force=${FORCE:-} etcd_is_new="" server_is_stopped=""
work=$(mktemp -d)
trap 'start_stopped_server; rm -rf "$work"' EXIT
"$action"
