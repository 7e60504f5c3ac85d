# shellcheck shell=bash
# shellcheck disable=SC2154,SC2016,SC2317 # variables are those of run.sh; quoted text is for the VM; functions are called by name
# What happens where there are several servers (VM_SERVERS=3): one on SQLite moves to etcd under running pods, the others
# join it, and the first one loses its power. Sourced by run.sh after steps.sh.

server_addresses() {
  local name
  for name in "$@"; do echo "${vm_address[$name]}"; done
}
# Members as etcd names them, and servers as the Service kubernetes leads to them.
listed() { server_addresses "$@" | paste -sd,; }
# Beats that a machine under emulation can keep.
slow_etcd="ETCD_ARGS='--heartbeat-interval 500 --election-timeout 5000'"

# through SERVER KUBECTL_WORD...: by that server's own kubeconfig.
through() { KUBECONFIG=$work/kubeconfig-$1 kubectl "${@:2}"; }
keep_kubeconfig() { on "$1" cat /var/lib/coracle/admin.kubeconfig >"$work/kubeconfig-$1"; }

move_to_etcd() {
  local before after name
  before=$(fingerprint)
  provision server ROLE=server NODE_IP="${vm_address[server]}" ETCD_MEMBERS="$(listed "${server_names[@]}")" "$slow_etcd"
  keep_kubeconfig server
  eventually 60 "the API server is ready" kubectl get --raw /readyz
  for name in "${pod_nodes[@]}"; do node_ready "$name"; done
  rolled_out
  pages
  after=$(fingerprint)
  if [[ $before != "$after" ]]; then
    diff <(echo "$before") <(echo "$after") >&2 || true
    fail "pods were touched"
  fi
  etcd_is_well server
}

join_servers() {
  local name token
  token=$(on server coracle token server)
  on server base64 -w0 /etc/coracle/etcd/ca.pem >"$work/etcd-ca"
  for name in "${server_names[@]:1}"; do
    on "$name" "umask 077 && echo $(<"$work/etcd-ca") | base64 -d >/root/etcd-ca.pem"
    provision "$name" ROLE=server JOIN="$server_url" TOKEN="$token" ETCD_CA=/root/etcd-ca.pem NODE_IP="${vm_address[$name]}" \
      ETCD_MEMBERS="$(listed "${server_names[@]}")" "$slow_etcd"
    keep_kubeconfig "$name"
  done
  rm "$work/etcd-ca"
}

# servers_are NAME...: their members of etcd are well, they are ready, and nodes and pods are led to them.
servers_are() {
  local name
  eventually 90 "$# members of etcd are well" etcd_is_well "$@"
  for name in "$@"; do eventually 90 "the API server on $name is ready" through "$name" get --raw /readyz; done
  eventually 60 "the Service kubernetes leads to $# servers" led_to "$@"
  through "$1" get endpoints kubernetes
}
# What etcd calls a member is where the server is.
etcd_is_well() {
  local expected said
  expected=$(server_addresses "$@" | sort)
  said=$(on "$1" 'set -a; . /etc/coracle/etcd/etcdctl.env
    ETCDCTL_ENDPOINTS='"$(server_addresses "$@" | sed 's,.*,https://&:2379,' | paste -sd,)"'
    etcdctl endpoint health --command-timeout=20s 2>&1') || {
    echo "$said"
    return 1
  }
  [[ $(grep 'is healthy' <<<"$said" | grep -oE '([0-9]+\.){3}[0-9]+' | sort -u) == "$expected" ]] || {
    echo "$said"
    return 1
  }
}
led_to() {
  local found
  found=$(through "$1" get endpoints kubernetes -o 'jsonpath={range .subsets[*].addresses[*]}{.ip}{"\n"}{end}' | sort)
  echo "it leads to $found"
  [[ $found == "$(server_addresses "$@" | sort)" ]]
}

servers_again() {
  local name before said
  for name in "${server_names[@]}"; do
    before="$(main_pid "$name" server) $(main_pid "$name" etcd)"
    said=$(on "$name" "/root/coracle/provision.sh /root/coracle/$(basename "$from")")
    [[ $before == "$(main_pid "$name" server) $(main_pid "$name" etcd)" ]] || fail "a second run on $name restarted something: $said"
  done
}

show_servers() {
  on server 'set -a; . /etc/coracle/etcd/etcdctl.env; etcdctl endpoint status --cluster -w table
    systemctl status coracle-server.service coracle-etcd.service --no-pager -n 3
    for unit in coracle-server coracle-etcd; do pid=$(systemctl show -P MainPID $unit); echo "$unit PSS: $(awk "/^Pss:/ {print \$2}" /proc/$pid/smaps_rollup) kB"; done
    systemd-analyze security --no-pager coracle-etcd.service | tail -n 1
    free -m' || true
}

# When nodes became ready: nothing else tells that they have been so all the time.
ready_since() { through "$1" get nodes -o 'jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].lastTransitionTime}{"\n"}{end}'; }

# The first one, by which all the others have joined.
power_cut_of_server() {
  local before after victim=${server_names[0]} name others=("${server_names[@]:1}")
  before=$(ready_since "${others[0]}")
  power_off "$victim"
  for name in "${others[@]}"; do eventually 90 "the API server on $name works without $victim" through "$name" get nodes; done
  servers_are "${others[@]}"
  export KUBECONFIG=$work/kubeconfig-${others[0]}
  starts_a_pod without-server "${others[@]}"
  # Longer than a node may be silent.
  kubectl wait --for=condition=Ready=Unknown node --all --timeout=50s >/dev/null 2>&1 && fail "a node was given up"
  pages
  after=$(ready_since "${others[0]}")
  [[ $before == "$after" ]] || fail "nodes did not stay Ready: before $before; after $after"
  kubectl get nodes,pods -o wide
}
# starts_a_pod NAME SERVER...: made by one server and read from all of them.
starts_a_pod() {
  local pod=$1 name
  through "$2" run "$pod" --image=docker.io/library/busybox:latest --image-pull-policy=IfNotPresent --restart=Never -- sleep 10000
  for name in "${@:2}"; do eventually 90 "$pod is Ready, says $name" through "$name" wait --for=condition=Ready "pod/$pod" --timeout=10s; done
}

server_returns() {
  local victim=${server_names[0]}
  power_on "$victim"
  eventually 180 "$victim answers" reachable "$victim"
  servers_are "${server_names[@]}"
  export KUBECONFIG=$work/kubeconfig-$victim
  eventually 30 "what was made without it is there" kubectl get pod without-server
  starts_a_pod with-server "${server_names[@]}"
  kubectl delete pod without-server with-server --grace-period=1 >/dev/null
  rolled_out
  pages
}

# Each leaves etcd to the others, and those work.
uninstall_servers() {
  local name left=("${server_names[@]}")
  for name in "${node_names[@]}"; do take_back "$name"; done
  while ((${#left[@]} > 1)); do
    take_back "${left[-1]}"
    unset 'left[-1]'
    servers_are "${left[@]}"
  done
  take_back "${left[0]}"
}

servers_steps() {
  step "boot $((${#server_names[@]} + nodes)) VMs ($accel)" boot
  step "unpack the release on them" take_inventories
  step "provision the server, on SQLite" provision_server
  step "provision and join $nodes nodes" provision_nodes
  step "roll out nginx" roll_out
  step "move the server to etcd: pods untouched" move_to_etcd
  step "$((${#server_names[@]} - 1)) servers join" join_servers
  step "all servers and members of etcd are well" servers_are "${server_names[@]}"
  step "fetch the page through the ClusterIP from every node" pages
  step "provision.sh again on all servers: nothing happens" servers_again
  step "what a server looks like" show_servers
  step "power cut of the first server: the others go on" power_cut_of_server
  step "its return" server_returns
  step "uninstall one after another: nothing is left" uninstall_servers
}
