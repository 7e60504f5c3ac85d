# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are those of provision.sh
# The part of provision.sh for servers that share an etcd of their own: its certificates, its members, the move from
# SQLite. Sourced by it.
#
# Members speak TLS with certificates of one authority to each other and to clients, and listen at NODE_IP alone. The
# first server makes the authority; ca.pem, its certificate and key, is what the other servers need to be let in. The etcd
# begins with one member and grows: each further one is a learner, without a vote, until it has all data, so that no
# step takes the majority away from those that work.

etcd_dir=$etc/etcd
etcd_data=/var/lib/coracle-etcd
etcd_packages=(etcd-server etcd-client openssl)
# Seconds for a member to be there, and for one that joins to have all data.
etcd_patience=300
# A certificate is good for ten years; it is made anew in its last one.
etcd_days=3650
etcd_renewal=$((365 * 86400))

has_etcd() { [[ $etcd_members && " $role " == *" server "* ]]; }

# === Before anything is changed

check_etcd_settings() {
  local address seen=,
  if [[ " $role " != *" server "* ]]; then
    [[ -z ${JOIN:-}${ETCD_MEMBERS:-}${ETCD_CA:-} ]] || die "JOIN, ETCD_MEMBERS and ETCD_CA go with ROLE=server"
    return 0
  fi
  if [[ $join && ! $join =~ ^https://[^/,]+:[0-9]+/?$ ]]; then die "JOIN=$join: expected https://ADDRESS:PORT of a server"; fi
  if [[ $join ]] && is_on_sqlite; then
    die "this machine is the server of a cluster of its own, which would be lost; take it back first: $0 --uninstall"
  fi
  if ! has_etcd; then
    [[ ! $etcd_ca ]] || die "ETCD_CA is of no use without ETCD_MEMBERS, the addresses of all servers with a member of etcd"
    return 0
  fi
  for address in ${etcd_members//,/ }; do
    [[ $address =~ ^[0-9]{1,3}(\.[0-9]{1,3}){3}$ ]] || die "ETCD_MEMBERS: $address is no IPv4 address"
    [[ $seen != *,$address,* ]] || die "ETCD_MEMBERS names $address twice"
    seen+=$address,
  done
  [[ $node_ip && $seen == *,$node_ip,* ]] || die "NODE_IP=$node_ip is not in ETCD_MEMBERS=$etcd_members: it has to be one of them"
  ! command -v ip >/dev/null || [[ $(ip -o address show to "$node_ip") ]] || die "NODE_IP=$node_ip is no address of this machine"
  if [[ $server_args == *--store* || $server_args == *--etcd-* || $server_args == *--data-dir* ]]; then
    die "SERVER_ARGS: with ETCD_MEMBERS leave out --store, --etcd-... and --data-dir"
  fi
  [[ ! $etcd_ca || -r $etcd_ca ]] || die "ETCD_CA=$etcd_ca cannot be read"
  if [[ $etcd_ca ]] && ! { grep -q 'BEGIN CERTIFICATE' "$etcd_ca" && grep -q 'PRIVATE KEY' "$etcd_ca"; }; then
    die "ETCD_CA=$etcd_ca does not hold a certificate and its key: copy $etcd_dir/ca.pem of the first server"
  fi
  if [[ $etcd_ca && -e $etcd_dir/ca.pem ]] && ! cmp -s "$etcd_ca" "$etcd_dir/ca.pem"; then
    die "ETCD_CA=$etcd_ca is another etcd's: this machine has $etcd_dir/ca.pem already"
  fi
  if [[ $join && ! $etcd_ca && ! -e $etcd_dir/ca.pem ]]; then
    die "ETCD_CA is missing: a copy of $etcd_dir/ca.pem of the first server"
  fi
  find_others
}

# The package starts an etcd of its own, without TLS: not even for a moment.
hold_package_etcd() { if [[ " $* " == *" etcd-server "* ]]; then systemctl -q mask etcd.service 2>/dev/null; fi; }
release_package_etcd() {
  if [[ " $* " == *" etcd-server "* ]]; then
    systemctl -q unmask etcd.service
    systemctl -q disable etcd.service 2>/dev/null || true
  fi
}

# === Certificates

make_etcd_certificates() {
  install -d -m 0755 "$etcd_dir"
  if [[ ! -e $etcd_dir/ca.pem ]]; then
    if [[ $etcd_ca ]]; then put 0600 "$etcd_ca" "$etcd_dir/ca.pem"; else make_etcd_authority; fi
  fi
  openssl x509 -in "$etcd_dir/ca.pem" | put_text 0644 "$etcd_dir/ca.crt" || true
  make_etcd_certificate member "subjectAltName=IP:$node_ip,IP:127.0.0.1" "extendedKeyUsage=serverAuth,clientAuth"
  chgrp etcd "$etcd_dir/member.key"
  chmod 0640 "$etcd_dir/member.key"
  make_etcd_certificate client "extendedKeyUsage=clientAuth"
  # For whoever looks after it: set -a; . /etc/coracle/etcd/etcdctl.env; etcdctl endpoint health --cluster
  put_text 0644 "$etcd_dir/etcdctl.env" <<END || true
ETCDCTL_API=3
ETCDCTL_ENDPOINTS=https://$node_ip:2379
ETCDCTL_CACERT=$etcd_dir/ca.crt
ETCDCTL_CERT=$etcd_dir/client.crt
ETCDCTL_KEY=$etcd_dir/client.key
END
}

make_etcd_authority() {
  cat >"$work/authority" <<'END'
[req]
distinguished_name = name
prompt = no
x509_extensions = authority
[name]
CN = coracle-etcd-ca
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
END
  make_etcd_key "$work/ca.key"
  openssl req -x509 -new -config "$work/authority" -key "$work/ca.key" -days $((2 * etcd_days)) -out "$work/ca.crt"
  cat "$work/ca.crt" "$work/ca.key" | put_text 0600 "$etcd_dir/ca.pem"
  etcd_is_new=1
}

make_etcd_key() { (umask 077 && openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"); }

# make_etcd_certificate NAME EXTENSION...: unless there is one that is good for a while. Keys stay when it is renewed, so
# that key and certificate belong together at any moment.
make_etcd_certificate() {
  local name=$1 file=$etcd_dir/$1
  shift
  if [[ ! -e $file.key ]]; then
    make_etcd_key "$work/$name.key"
    put 0600 "$work/$name.key" "$file.key"
  fi
  if is_good_certificate "$file.crt"; then return 0; fi
  printf '%s\n' "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" "authorityKeyIdentifier=keyid" \
    "$@" >"$work/extensions"
  openssl req -new -key "$file.key" -subj "/CN=coracle-etcd-$name" -out "$work/request"
  openssl x509 -req -in "$work/request" -CA "$etcd_dir/ca.pem" -CAkey "$etcd_dir/ca.pem" -days "$etcd_days" \
    -set_serial "0x$(openssl rand -hex 16)" -extfile "$work/extensions" -out "$work/$name.crt" 2>/dev/null
  put 0644 "$work/$name.crt" "$file.crt"
  # etcd reads it again by itself.
  restart_later coracle-server.service
}
is_good_certificate() {
  [[ -e $1 ]] && openssl x509 -in "$1" -noout -checkend "$etcd_renewal" >/dev/null &&
    openssl verify -CAfile "$etcd_dir/ca.crt" "$1" >/dev/null 2>&1 &&
    { [[ $1 != */member.crt ]] || openssl x509 -in "$1" -noout -checkip "$node_ip" | grep -q 'does match'; }
}

# === Members

peer_url() { echo "https://$1:2380"; }
client_url() { echo "https://$1:2379"; }
find_others() {
  local address
  others=()
  for address in ${etcd_members//,/ }; do [[ $address == "$node_ip" ]] || others+=("$address"); done
}

# etcd_flags FLAG: where coracle finds etcd. Its own member first, because the first one that answers is used.
etcd_flags() {
  local address urls
  urls=$(client_url "$node_ip")
  for address in "${others[@]}"; do urls+=,$(client_url "$address"); done
  echo "$1 etcd=$urls --etcd-cacert $etcd_dir/ca.crt --etcd-cert $etcd_dir/client.crt --etcd-key $etcd_dir/client.key"
}

# etcdctl_at ADDRESS WORD...: etcdctl itself tries for long where nobody is, and ends where flags and environment differ.
etcdctl_at() {
  local address=$1
  shift
  timeout 3 bash -c "exec 3<>/dev/tcp/$address/2379" || return 1
  ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$(client_url "$address") ETCDCTL_CACERT=$etcd_dir/ca.crt \
    ETCDCTL_CERT=$etcd_dir/client.crt ETCDCTL_KEY=$etcd_dir/client.key \
    timeout 30 etcdctl --dial-timeout=5s --command-timeout=15s "$@"
}

# ask_etcd ADDRESS... -- WORD...: the first of them that does it. What the last one has said is in $work/etcdctl.
ask_etcd() {
  local address addresses=()
  while [[ $1 != -- ]]; do addresses+=("$1") && shift; done
  shift
  for address in "${addresses[@]}"; do
    if etcdctl_at "$address" "$@" 2>"$work/etcdctl"; then return 0; fi
  done
  return 1
}

# This machine's line of `etcdctl member list`: ID, status, name, peer URL, client URL, is it a learner.
own_member() { grep -F ", $(peer_url "$node_ip"), " <<<"$1" || true; }

# As etcd itself asks whether its beginning still counts.
has_etcd_data() { compgen -G "$etcd_data/member/wal/*.wal" >/dev/null; }

# Data that was lost must not become a second, empty etcd.
check_etcd_may_begin() {
  local list address
  if list=$(ask_etcd "${others[@]}" -- member list); then
    die "etcd runs already, and this machine has no data of it; its members are:"$'\n'"$list"$'\n'"give JOIN=https://ADDRESS:6443 of one of them"
  fi
  if grep -qs -e '--store etcd=' "$etc/server.env"; then
    die "the server has its objects in etcd, and the data of its member in $etcd_data is gone: give JOIN=https://ADDRESS:6443 of a server that lives, or restore a snapshot there (docs/servers.md)"
  fi
  # Of an authority that this run has made nobody else can have a member.
  if [[ $etcd_is_new || $force ]]; then return 0; fi
  for address in "${others[@]}"; do
    has_no_etcd "$address" ||
      die "$address does not say whether it runs a member of this etcd: start that machine and run this again; if none of the others has ever been a member, with FORCE=1"
  done
}

# Nobody listens there, and the machine itself says so.
has_no_etcd() {
  [[ $(timeout 3 bash -c "exec 3<>/dev/tcp/$1/2379" 2>&1) == *"Connection refused"* ]]
}

# How the member begins.
begin_etcd() {
  local list own url address cluster deadline=$((SECONDS + etcd_patience))
  if [[ ! $join ]]; then
    check_etcd_may_begin
    write_etcd_beginning new "$node_ip=$(peer_url "$node_ip")"
    return 0
  fi
  until list=$(ask_etcd "${others[@]}" -- member list) && own=$(own_member "$list") && [[ $own ]]; do
    if [[ $list ]]; then
      say "joining etcd"
      ask_etcd "${others[@]}" -- member add "$node_ip" --peer-urls="$(peer_url "$node_ip")" --learner >/dev/null && continue
    fi
    # One learner at a time, and only when all members have seen each other for a moment.
    ((SECONDS < deadline)) || die "etcd does not let this machine in: $(tail -n 1 "$work/etcdctl")"
    sleep 2
  done
  if [[ $own != *,\ unstarted,* ]]; then
    die "etcd knows this machine as member ${own%%,*}, but its data in $etcd_data is gone: remove it on another server (etcdctl member remove ${own%%,*}), and run this again"
  fi
  cluster=
  for url in $(grep -o 'https://[0-9.]*:2380' <<<"$list"); do
    address=${url#https://}
    cluster+=${cluster:+,}${address%:*}=$url
  done
  write_etcd_beginning existing "$cluster"
}
write_etcd_beginning() {
  put_text 0644 "$etc/etcd-begin.env" <<END || true
# Written by provision.sh: how this member of etcd begins; it goes once the member takes part
CORACLE_ETCD_BEGIN_ARGS=--initial-cluster-state $1 --initial-cluster $2
END
}

# By these flags alone a member without data ends: there is nobody to join. Those of its beginning come after them.
write_etcd_flags() {
  local peer client
  peer=$(peer_url "$node_ip")
  client=$(client_url "$node_ip")
  {
    printf '# Written by provision.sh: flags of etcd\nCORACLE_ETCD_ARGS=%s\n' "--name $node_ip --data-dir $etcd_data \
--listen-peer-urls $peer --initial-advertise-peer-urls $peer --listen-client-urls $client --advertise-client-urls $client \
--client-cert-auth --trusted-ca-file $etcd_dir/ca.crt --cert-file $etcd_dir/member.crt --key-file $etcd_dir/member.key \
--peer-client-cert-auth --peer-trusted-ca-file $etcd_dir/ca.crt --peer-cert-file $etcd_dir/member.crt --peer-key-file $etcd_dir/member.key \
--initial-cluster-state existing --initial-cluster $node_ip=$peer\
${etcd_args:+ $etcd_args}"
    # Without it 3.4 refuses to start there.
    if [[ $(uname -m) == aarch64 ]]; then echo ETCD_UNSUPPORTED_ARCH=arm64; fi
  } | put_text 0644 "$etc/etcd.env" && restart_later coracle-etcd.service
  return 0
}

start_etcd() {
  local unit=coracle-etcd.service deadline=$((SECONDS + etcd_patience))
  if [[ ${reload:-} ]]; then systemctl daemon-reload; fi
  systemctl -q enable "$unit"
  if ! systemctl -q is-active "$unit"; then
    say "starting $unit"
    systemctl start --no-block "$unit"
  elif [[ " ${restart[*]} " == *" $unit "* ]]; then
    say "restarting $unit"
    systemctl restart --no-block "$unit"
  else
    say "$unit is running and up to date"
  fi
  until etcd_takes_part; do
    ((SECONDS < deadline)) || failed "$unit"
    sleep 1
  done
  # Without its data it must never begin again by itself.
  rm -f "$etc/etcd-begin.env"
}

# Whether it is there and votes: a learner is given its vote as soon as it has all data.
etcd_takes_part() {
  local list own
  # A learner cannot say what it is, nor one that was removed.
  list=$(ask_etcd "$node_ip" "${others[@]}" -- member list) || return 1
  own=$(own_member "$list")
  [[ $own ]] || die "etcd does not know this machine: it was removed from it. Run 'systemctl stop coracle-etcd', delete $etcd_data, and run this again with JOIN=https://ADDRESS:6443 of another server"
  systemctl -q is-active coracle-etcd.service || return 1
  if [[ $own == *,\ false ]]; then return 0; fi
  ask_etcd "${others[@]}" -- member promote "${own%%,*}" >/dev/null || true
  return 1
}

set_up_etcd() {
  make_etcd_certificates
  write_etcd_flags
  has_etcd_data || begin_etcd
  start_etcd
}

# === From SQLite

is_on_sqlite() {
  [[ -e $etc/server.env && -e /var/lib/coracle/server/store.db ]] && ! grep -q -e '--store etcd=' -e '--join ' "$etc/server.env"
}

# A server that has its objects in SQLite takes them along, before it is told of etcd: with an empty one it would begin
# an empty cluster, and nodes would end their pods.
move_to_etcd() {
  local said flags
  is_on_sqlite || return 0
  say "moving all objects from SQLite to etcd (pods keep running)"
  server_is_stopped=1
  systemctl stop coracle-server.service
  read -ra flags < <(etcd_flags --to)
  if ! said=$("$bin_dir/coracle" store copy --from sqlite "${flags[@]}" 2>&1); then
    start_stopped_server
    die "the server goes on with SQLite: $said$(advise_on_copy "$said")"
  fi
  printf '%s\n' "$said"
}

# Whatever ends this script, Ctrl-C and a closed terminal too: with the flags that it has in server.env.
start_stopped_server() {
  if [[ $server_is_stopped ]]; then
    server_is_stopped=
    systemctl start --no-block coracle-server.service || true
  fi
}

# A copy goes into an empty etcd alone. Where a server runs on it nothing is to be deleted.
advise_on_copy() {
  local record what
  if [[ $1 == *" runs on "* ]]; then return 0; fi
  record=$(ask_etcd "$node_ip" -- get /coracle/.cluster --print-value-only) || return 0
  case $record in
  '') return 0 ;;
  *'"isCopying":true'*) what="etcd has a part of a copy: delete it" ;;
  *) what="etcd has objects already. If no server runs on it, they are of a run that was interrupted: delete them" ;;
  esac
  printf "\n%s, and run this again:\n  (set -a; . %s; etcdctl del --prefix /coracle/)" "$what" "$etcd_dir/etcdctl.env"
}

# === Back to what it was

# The others must not go on counting this machine as one that may come back. Dies before anything is deleted: without this
# member they may be too few.
leave_etcd() {
  local list heard="" deadline=$((SECONDS + 60))
  [[ -e $etcd_dir/ca.crt ]] && has_etcd_data || return 0
  find_others
  ((${#others[@]})) || return 0
  if systemctl -q is-active coracle-server.service; then server_is_stopped=1; fi
  systemctl stop coracle-server.service || true
  # It lets nobody go while one of the others has just come.
  until list=$(ask_etcd "$node_ip" "${others[@]}" -- member list) && is_out_of_etcd "$list"; do
    if [[ $list ]]; then heard=1; fi
    if [[ ! $heard ]] || ((SECONDS >= deadline)); then
      cannot_leave_etcd
      break
    fi
    sleep 2
  done
  server_is_stopped=
}

# is_out_of_etcd LIST: whether nobody else needs this member, once it was taken out.
is_out_of_etcd() {
  local own
  own=$(own_member "$1")
  [[ $1 == *$'\n'* && $own ]] || return 0
  ask_etcd "${others[@]}" -- member remove "${own%%,*}" >/dev/null
}

cannot_leave_etcd() {
  local said
  said=$(tail -n 1 "$work/etcdctl" || true)
  if [[ $force ]]; then
    say "warning: the other members of etcd may still count this machine as one of them (etcdctl member list, member remove): $said"
    return 0
  fi
  die "etcd does not let this machine go, so nothing was deleted: ${said:-no member answers}
Start its other members (etcdctl endpoint health --cluster) and run this again; if they are gone for good: FORCE=1 $0 --uninstall"
}
