# shellcheck shell=bash
# shellcheck disable=SC2154,SC2016,SC2317 # variables are those of run.sh; quoted text is for the VM; functions are called by name
# What happens to the VMs, in order. Sourced by run.sh.

node_names=()
for ((number = 1; number <= nodes; number++)); do node_names+=("node$number"); done
server_names=(server)
for ((number = 2; number <= ${VM_SERVERS:-1}; number++)); do server_names+=("server$number"); done
server_url=https://$prefix.0.10:6443
# Nodes that run pods, and machine:service of everything that may be restarted.
pod_nodes=("${node_names[@]}")
services=(server:server)
for name in "${node_names[@]}"; do services+=("$name:agent"); done
if [[ ${VM_SERVER_NODE:-} ]]; then
  pod_nodes+=(server)
  services+=(server:agent)
fi
pods_cgroup=/sys/fs/cgroup/coracle.slice/coracle-pods.service

kubectl() { within timeout 60 "$tools/kubectl" "$@"; }
fail() {
  echo "$*" >&2
  return 1
}

# === The machines

boot() {
  local name number=11 subnet=0
  # server, server2, ... from .10 down, nodes from there up.
  for name in "${server_names[@]}"; do
    number=$((number - 1))
    define_vm "$name" 0 "$number" 640
    power_on "$name"
  done
  number=10
  for name in "${node_names[@]}"; do
    number=$((number + 1))
    # The last node is elsewhere.
    if [[ $name == "${node_names[-1]}" && ${#pod_nodes[@]} -gt 1 ]]; then subnet=${VM_FAR:-1}; fi
    define_vm "$name" "$subnet" "$number" 640
    power_on "$name"
  done
  for name in "${server_names[@]}" "${node_names[@]}"; do eventually 180 "$name answers" reachable "$name"; done
  on server 'uname -r; systemctl is-system-running --wait' || true
}

# What a machine has, besides what time changes.
inventory() {
  on "$1" 'find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root -o -path /var/lib/systemd -o -path "/etc/*-" -o -path /etc/.pwd.lock \) -prune -o -print | sort
    ls -d /run/coracle* 2>/dev/null
    cut -d" " -f5 /proc/self/mountinfo | grep -v -e ^/proc/ -e ^/run/user -e credentials | sort
    ip -o link | cut -d: -f2
    ip route
    iptables-save | grep -i -e coracle -e "^-A"
    nft list tables | grep coracle
    find /sys/fs/cgroup -type d -name "*coracle*" -o -type d -name "*pod*"
    sysctl net.ipv4.ip_forward fs.inotify.max_user_instances
    pgrep -l coracle; true'
}

give_release() { on "$1" 'mkdir -p /root/coracle && tar -C /root/coracle -xf /dev/vdb'; }
provision() {
  local name=$1
  shift
  on "$name" "$* /root/coracle/provision.sh /root/coracle/$(basename "$from")"
}

early_failures() {
  local said
  said=$(provision server ROLE=boss 2>&1) && fail "an unknown role was accepted"
  [[ $said == *"expected server, agent or up"* ]] || fail "unclear: $said"
  said=$(provision server ROLE=agent 2>&1) && fail "an agent without a server was accepted"
  [[ $said == *"SERVER is missing"* ]] || fail "unclear: $said"
  said=$(provision server ROLE=agent SERVER="$server_url" TOKEN=nonsense 2>&1) && fail "a bad token was accepted"
  [[ $said == *"TOKEN is none"* ]] || fail "unclear: $said"
  on server 'test ! -e /etc/coracle -a ! -e /usr/local/bin/coracle'
}

provision_server() {
  provision server ROLE=server NODE_IP="${vm_address[server]}" \
    "SERVER_ARGS='--node-monitor-grace-period 45 --pod-eviction-timeout 5'"
  on server cat /var/lib/coracle/admin.kubeconfig >"$KUBECONFIG"
  eventually 60 "the API server is ready" kubectl get --raw /readyz
}

provision_nodes() {
  local name token more
  token=$(on server coracle token create)
  for name in "${pod_nodes[@]}"; do
    # The first one finds its address itself, and may find another one later.
    more=NODE_IP=${vm_address[$name]}
    if [[ $name == node1 ]]; then more=; fi
    # The last one has what Debian had before nftables.
    if [[ $name == "${node_names[-1]}" && $name != node1 ]]; then use_legacy_iptables "$name"; fi
    provision "$name" ROLE=agent SERVER="$server_url" TOKEN="$token" NODE_NAME="$name" "$more" \
      "AGENT_ARGS='--eviction-pressure-transition-period 10 --pod-max-pids 300'"
    on "$name" 'coracle image import /root/coracle/nginx.tar && coracle image import /root/coracle/busybox.tar' >/dev/null
  done
  for name in "${pod_nodes[@]}"; do node_ready "$name"; done
  kubectl get nodes -o wide
}

use_legacy_iptables() {
  on "$1" 'update-alternatives --set iptables /usr/sbin/iptables-legacy && update-alternatives --set ip6tables /usr/sbin/ip6tables-legacy
    iptables --version'
}

node_ready() {
  eventually 120 "node $1 is Ready" kubectl wait --for=condition=Ready "node/$1" --timeout=10s
}

# === Workloads

roll_out() {
  # One second for an answer to a probe is little where everything is emulated and busy with a restart.
  sed 's/^\( *\)periodSeconds: 2$/&\n\1timeoutSeconds: 20/' "$root/examples/nginx.yaml" | kubectl apply -f -
  rolled_out
  kubectl get pods -o wide
}
rolled_out() { eventually 150 "nginx is rolled out" kubectl rollout status deployment/nginx --timeout=20s; }

page_from() { on "$1" "curl -fsS --max-time 5 http://$(kubectl get service nginx -o 'jsonpath={.spec.clusterIP}')/" | grep -q 'Welcome to nginx'; }
pages() {
  local name
  for name in "${pod_nodes[@]}"; do eventually 60 "$name gets the page" page_from "$name"; done
}

page_by_name() { kubectl exec "$1" -- timeout 20 wget -q -O - "http://$2/" | grep -q 'Welcome to nginx'; }
names() {
  local name pod host
  for name in "${pod_nodes[@]}"; do
    pod=$(pod_on "$name")
    for host in nginx nginx.default.svc.cluster.local; do
      eventually 60 "a pod of $name finds $host" page_by_name "$pod" "$host"
    done
    # Questions are no connections to the kernel: it takes these rules.
    on "$name" "nft list table ip coracle-names" | grep -q notrack || fail "$name follows questions for names"
    ! on "$name" "cat /proc/net/nf_conntrack 2>/dev/null" | grep -q 'dst=10.96.0.10 .*dport=53 ' || fail "$name has followed one"
  done
}

logs_and_exec() {
  local pod
  pod=$(kubectl get pods -l app=nginx -o 'jsonpath={.items[0].metadata.name}')
  eventually 20 "kubectl logs" kubectl logs "$pod"
  kubectl exec "$pod" -- cat /usr/share/nginx/html/index.html | grep -q 'Welcome to nginx' || fail "exec printed something else"
  kubectl logs "$pod" --tail=2
}

# nftables keeps Services where the kernel has what it takes, and the node's own program reads what was written.
tables() {
  local name address table
  address=$(kubectl get service nginx -o 'jsonpath={.spec.clusterIP}')
  for name in "${pod_nodes[@]}"; do
    on "$name" 'uname -r; nft --version'
    on "$name" 'nft list ruleset >/dev/null' || fail "nft of $name cannot read the ruleset"
    table=$(on "$name" 'nft list table ip coracle') || fail "$name has no table of Services"
    [[ $table == *"$address . tcp . 80 : goto"* ]] || fail "nginx's address is not in $name's table: $table"
  done
}

rolling_update() {
  kubectl set env deployment/nginx "ROUND=$SECONDS" >/dev/null
  rolled_out
  pages
}

pod_starts() {
  local begin times=() number
  for number in 1 2 3 4 5; do
    begin=$(date +%s%3N)
    kubectl run "start-$number" --image=docker.io/library/busybox:latest --image-pull-policy=IfNotPresent --restart=Never \
      -- sleep 10000 >/dev/null
    kubectl wait --for=condition=Ready "pod/start-$number" --timeout=60s >/dev/null
    times+=($(($(date +%s%3N) - begin)))
  done
  kubectl delete pods --grace-period=1 start-1 start-2 start-3 start-4 start-5 >/dev/null
  mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
  echo "pod start as kubectl sees it (run, then wait), p50 of ${#times[@]}: ${times[2]} ms; fastest ${times[0]} ms"
}

limits_hold() {
  local pids
  kubectl apply -f - <"$here/limits.yaml" >/dev/null
  eventually 60 "the limited pod is Ready" kubectl wait --for=condition=Ready pod/limited --timeout=10s
  kubectl exec limited -- sh -c 'cd /sys/fs/cgroup && head memory.max memory.oom.group cpu.max cpu.weight pids.max /proc/1/oom_score_adj'
  [[ $(kubectl exec limited -- cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.oom.group) == 16777216$'\n'1 ]] || fail "other limits"
  kubectl patch pod limited --subresource resize -p '{"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "250m", "memory": "32Mi"}}}]}}'
  eventually 30 "the limited pod is resized" resized limited 33554432 '25000 100000'
  pids=$(cgroup_of_pod limited pids.max)
  [[ $pids == 300 ]] || fail "a pod may have $pids processes"
  eventually 60 "the greedy container is OOMKilled" reason_is greedy OOMKilled
  # Below what it was born with: only with all capabilities.
  eventually 60 "the guaranteed pod is Ready" kubectl wait --for=condition=Ready pod/guaranteed --timeout=10s
  [[ $(kubectl exec guaranteed -- cat /proc/1/oom_score_adj) == -997 ]] || fail "the guaranteed pod is not killed last"
  eventually 60 "a profile that nobody has loaded is refused" refused armoured 'profile "nobody-has-loaded-this" is not loaded'
  kubectl get pod armoured -o 'jsonpath={.status.reason}: {.status.message}{"\n"}'
  kubectl delete pod limited greedy guaranteed armoured --grace-period=1 >/dev/null
}
# resized POD MEMORY_MAX CPU_MAX: as its own cgroup and that of its pod say, without a restart.
resized() {
  local inside said wanted=$2$'\n'$3
  inside=$(kubectl exec "$1" -- cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max)
  said=$(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount} {.status.conditions[?(@.type=="PodResizeInProgress")].status}')
  [[ $inside == "$wanted" && $said == "0 " && $(cgroup_of_pod "$1" memory.max cpu.max) == "$wanted" ]]
}
# cgroup_of_pod POD FILE...: of a burstable one.
cgroup_of_pod() {
  local uid node
  read -r uid node < <(kubectl get pod "$1" -o 'jsonpath={.metadata.uid} {.spec.nodeName}{"\n"}')
  shift
  on "$node" "cd $pods_cgroup/kubepods/burstable/pod$uid && cat $*"
}
# By the node, before anything of it starts.
refused() { [[ $(kubectl get pod "$1" -o 'jsonpath={.status.phase} {.status.message}') == "Failed "*"$2"* ]]; }
reason_is() {
  [[ $(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].state.terminated.reason}') == "$2" ]]
}

show_node() {
  on node1 'systemctl status coracle-agent.service coracle-pods.service --no-pager -n 3
    systemd-cgls --no-pager /coracle.slice
    for unit in coracle-agent coracle-pods; do pid=$(systemctl show -P MainPID $unit); echo "$unit PSS: $(awk "/^Pss:/ {print \$2}" /proc/$pid/smaps_rollup) kB"; done
    free -m' || true
  on server 'systemctl status coracle-server.service --no-pager -n 3
    pid=$(systemctl show -P MainPID coracle-server); echo "coracle-server PSS: $(awk "/^Pss:/ {print \$2}" /proc/$pid/smaps_rollup) kB"
    systemd-analyze security --no-pager coracle-server.service | tail -n 1
    free -m' || true
}

# 100 MB from a pod of one subnet to a pod of another, whose path takes no full packets; and a body the other way.
transfer() {
  local from to address received answer
  to=$(pod_on "${pod_nodes[0]}")
  from=$(pod_on "${pod_nodes[1]}")
  address=$(kubectl get pod "$to" -o 'jsonpath={.status.podIP}')
  kubectl exec "$to" -- dd if=/dev/zero of=/usr/share/nginx/html/large bs=1M count=100 2>/dev/null
  received=$(within timeout 150 "$tools/kubectl" exec "$from" -- sh -c "time wget -q -O - http://$address/large | wc -c")
  [[ $received == 104857600 ]] || fail "$received bytes have arrived"
  # nginx takes no such request, but says so only to whom it could hear out.
  answer=$(kubectl exec "$from" -- sh -c "(printf 'POST / HTTP/1.0\\r\\nContent-Length: 8000\\r\\n\\r\\n'; head -c 8000 /dev/zero; sleep 2) |
    nc -w 10 $address 80")
  [[ $answer == *"405 Not Allowed"* ]] || fail "no answer to a request of 8000 bytes, but: $answer"
  answer=$(on "${pod_nodes[1]}" "head -c 8000 /dev/zero | curl -s -o /dev/null -w '%{http_code}' --max-time 30 --data-binary @- http://$address/")
  [[ $answer == 405 ]] || fail "no answer to curl with a body of 8000 bytes, but: $answer"
  kubectl exec "$from" -- ip link show eth0
  on "${pod_nodes[0]}" 'ip route show proto 67; ip -d link show coracle-vxlan' || true
}
pod_on() { kubectl get pods -l app=nginx --field-selector "spec.nodeName=$1" -o 'jsonpath={.items[0].metadata.name}'; }

# === Faults

# What a restart must not change: processes in the pods' cgroups and what the API says of pods.
fingerprint() {
  processes_of "${pod_nodes[@]}"
  kubectl get pods -o 'jsonpath={range .items[*]}{.metadata.uid} {.status.podIP} {.status.containerStatuses[*].restartCount} {.status.containerStatuses[*].containerID} {.status.conditions[?(@.type=="Ready")].lastTransitionTime}{"\n"}{end}' | sort
}
processes_of() {
  local name
  for name in "$@"; do
    on "$name" "cd $pods_cgroup && find . -path '*kubepods*' -name cgroup.procs -exec grep -H . {} + | sort; pgrep -x coracle-shim | sort"
  done
}

main_pid() { on "$1" systemctl show -P MainPID "coracle-$2.service"; }

# untouched VERB...: runs it for every service; services must be new, pods must be what they were.
untouched() {
  local before after name pair pids=() number=0
  before=$(fingerprint)
  for pair in "${services[@]}"; do
    pids+=("$(main_pid "${pair%:*}" "${pair#*:}")")
    "$@" "${pair%:*}" "${pair#*:}"
  done
  for pair in "${services[@]}"; do
    eventually 60 "coracle-${pair#*:} is active on ${pair%:*}" new_process "${pair%:*}" "${pair#*:}" "${pids[$number]}"
    number=$((number + 1))
  done
  eventually 60 "the API server is ready" kubectl get --raw /readyz
  for name in "${pod_nodes[@]}"; do node_ready "$name"; done
  rolled_out
  pages
  after=$(fingerprint)
  if [[ $before != "$after" ]]; then
    diff <(echo "$before") <(echo "$after") >&2 || true
    fail "pods were touched"
  fi
}
new_process() { on "$1" systemctl -q is-active "coracle-$2" && [[ $(main_pid "$1" "$2") != "$3" ]]; }

do_restart() { on "$1" systemctl restart "coracle-$2"; }
do_kill() { on "$1" systemctl kill --kill-who=main -s KILL "coracle-$2"; }
do_upgrade() {
  # The same program with other bytes, from a directory as a build leaves it.
  on "$1" "rm -rf /root/build && mkdir /root/build && cp -r /usr/local/bin/coracle* /root/build/ && for f in /root/build/*; do echo upgrade >>\$f; done
    /root/coracle/provision.sh /root/build"
}

again_changes_nothing() {
  local before said
  before=$(main_pid node1 agent)
  said=$(on node1 /root/coracle/provision.sh /root/build)
  [[ $said == *"running and up to date"* && $before == "$(main_pid node1 agent)" ]] || fail "a second run did something: $said"
}

# What pods have written to volumes of the default class is there after it.
reboot_node() {
  local before
  kubectl apply -f - <<<"$data_of_node1" >/dev/null
  eventually 90 "a pod with data is Ready" data_ready
  before=$(kubectl exec data-0 -- cat /data/mark)
  reboot_vm node1
  node_ready node1
  rolled_out
  eventually 120 "all pods run again" all_ready
  pages
  eventually 120 "the pod with data runs again" data_ready
  [[ $before && $before == "$(kubectl exec data-0 -- cat /data/mark)" ]] || fail "the data of before the reboot are gone"
  kubectl delete statefulset data >/dev/null
  kubectl delete pvc data-data-0 >/dev/null
  eventually 60 "the volume goes with its claim" no_volumes
}
data_ready() { kubectl wait --for=condition=Ready pod/data-0 --timeout=10s; }
no_volumes() { [[ -z $(kubectl get pv -o name) ]]; }
data_of_node1='
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: data}
spec:
  selector: {matchLabels: {app: data}}
  serviceName: data
  template:
    metadata: {labels: {app: data}}
    spec:
      nodeSelector: {kubernetes.io/hostname: node1}
      terminationGracePeriodSeconds: 1
      containers:
      - name: data
        image: docker.io/library/busybox:latest
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "[ -e /data/mark ] || { cat /proc/sys/kernel/random/uuid >/data/new; sync; mv /data/new /data/mark; sync; }; exec sleep 36000"]
        readinessProbe: {exec: {command: [test, -s, /data/mark]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
'
all_ready() { kubectl wait --for=condition=Ready pod -l app=nginx --timeout=10s; }

reboot_server() {
  local before after
  before=$(processes_of "${node_names[@]}")
  reboot_vm server
  eventually 90 "the API server is ready" kubectl get --raw /readyz
  node_ready node1
  rolled_out
  pages
  after=$(processes_of "${node_names[@]}")
  [[ $before == "$after" ]] || fail "processes of pods were touched"
}

power_cut() {
  local victim=${node_names[-1]}
  kubectl get pods -o wide
  power_off "$victim"
  eventually 120 "$victim is NotReady" not_ready "$victim"
  # With no node left nobody is evicted, as upstream: it is rather the network of the control plane.
  if ((${#pod_nodes[@]} > 1)); then
    eventually 120 "its pods are gone" nothing_runs_on "$victim"
    rolled_out
    eventually 60 "the page is there without it" page_from "$(grep -vx "$victim" < <(printf '%s\n' "${pod_nodes[@]}") | head -n 1)"
  fi
  power_on "$victim"
  eventually 180 "$victim answers" reachable "$victim"
  node_ready "$victim"
  eventually 90 "nothing of its old pods is left" clean_after_cut "$victim"
  rolled_out
  pages
}
not_ready() { [[ $(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') != True ]]; }
nothing_runs_on() {
  local ready
  ready=$(kubectl get pods -l app=nginx -o 'jsonpath={range .items[?(@.status.phase=="Running")]}{.spec.nodeName} {.metadata.deletionTimestamp}{"\n"}{end}')
  ! grep -qx "$1 *" <<<"$ready"
}
clean_after_cut() {
  local wanted running
  wanted=$(kubectl get pods -A --field-selector "spec.nodeName=$1" -o name | wc -l)
  running=$(on "$1" 'pgrep -cx coracle-shim || true')
  ((wanted == running))
}

# === What a machine may suffer from

condition_is() { [[ $(kubectl get node "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].status}") == "$3" ]]; }
has_event() {
  local events
  events=$(kubectl get events -o 'jsonpath={range .items[*]}{.involvedObject.kind} {.reason}{"\n"}{end}')
  grep -qx "Node $1" <<<"$events"
}

full_disk() {
  # As much as that less than a tenth is left.
  on node1 'fallocate -l $(($(df --output=avail -B1 / | tail -n 1) * 95 / 100)) /root/filler'
  eventually 60 "node1 has DiskPressure" condition_is node1 DiskPressure True
  eventually 30 "node1 takes no pods" has_taint node1 disk-pressure
  eventually 60 "a pod of node1 is evicted" evicted node1
  kubectl get pods --field-selector status.phase=Failed -o 'jsonpath={.items[0].status.reason}: {.items[0].status.message}{"\n"}'
  on node1 rm /root/filler
  eventually 90 "node1 has no DiskPressure" condition_is node1 DiskPressure False
  has_event NodeHasDiskPressure || fail "no event tells of it"
  # Images that nobody used any more have gone before the pods, and no registry has them.
  on node1 'coracle image import /root/coracle/nginx.tar && coracle image import /root/coracle/busybox.tar' >/dev/null
  kubectl delete pods --field-selector status.phase=Failed >/dev/null
  rolled_out
  pages
  kubectl describe node node1 | sed -n '/^Conditions:/,/^Addresses:/p'
}
evicted() {
  local reasons
  reasons=$(kubectl get pods --field-selector "spec.nodeName=$1" -o 'jsonpath={range .items[*]}{.status.reason}{"\n"}{end}')
  grep -qx Evicted <<<"$reasons"
}
has_taint() { [[ $(kubectl get node "$1" -o 'jsonpath={.spec.taints[*].key}') == *"$2"* ]]; }

wrong_clock() {
  local before after
  before=$(processes_of node1)
  on node1 'date -s "+10 minutes" >/dev/null'
  eventually 90 "node1 reports its clock" condition_is node1 ClockSkew True
  kubectl get node node1 -o 'jsonpath={.status.conditions[?(@.type=="ClockSkew")].message}{"\n"}'
  on node1 'date -s "-10 minutes" >/dev/null'
  eventually 90 "node1 reports that its clock is right" condition_is node1 ClockSkew False
  has_event ClockSkew || fail "no event tells of it"
  node_ready node1
  after=$(processes_of node1)
  [[ $before == "$after" ]] || fail "processes of pods were touched"
}

# As DHCP would do it, there and back.
new_address() {
  local before after old=${vm_address[node1]}
  local new=${old%.*}.77
  kubectl run stayer --image=docker.io/library/busybox:latest --image-pull-policy=IfNotPresent \
    --overrides='{"spec": {"nodeName": "node1", "terminationGracePeriodSeconds": 1}}' -- sleep 10000 >/dev/null
  eventually 60 "a pod is Ready on node1" kubectl wait --for=condition=Ready pod/stayer --timeout=10s
  before=$(processes_of node1)
  move_to "$new" "$old"
  has_event NodeAddressChanged || fail "no event tells of it"
  eventually 60 "exec through the new address" kubectl exec stayer -- true
  kubectl get nodes -o wide
  move_to "$old" "$new"
  after=$(processes_of node1)
  [[ $before == "$after" ]] || fail "processes of pods were touched"
  kubectl delete pod stayer >/dev/null
}
# move_to NEW OLD
move_to() {
  on node1 "systemd-run --quiet --collect sh -c 'sleep 1; ip address delete $2/24 dev eth0; ip address add $1/24 dev eth0; ip route replace default via ${1%.*}.254'"
  forget_connection node1
  vm_address[node1]=$1
  eventually 60 "node1 answers at $1" reachable node1
  eventually 90 "node1 is known at $1" has_address node1 "$1"
  node_ready node1
  rolled_out
  pages
}
has_address() { [[ $(kubectl get node "$1" -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}') == "$2" ]]; }

# === The end

uninstall() {
  local name
  for name in "${node_names[@]}" server; do take_back "$name"; done
}
take_back() {
  on "$1" /usr/local/lib/coracle/provision.sh --uninstall
  inventory "$1" >"$work/$1.after"
  if ! diff "$work/$1.before" "$work/$1.after" >"$work/$1.diff"; then
    cat "$work/$1.diff" >&2
    fail "$1 is not what it was"
  fi
}

# Control plane and node on one machine.
both_on_one() {
  local pod_nodes=(node1) services=(node1:up)
  provision node1 ROLE=up
  on node1 cat /var/lib/coracle/admin.kubeconfig >"$KUBECONFIG"
  eventually 60 "the API server is ready" kubectl get --raw /readyz
  on node1 'coracle image import /root/coracle/nginx.tar' >/dev/null
  node_ready node1
  roll_out
  pages
  untouched do_restart
  take_back node1
}

take_inventories() {
  local name
  for name in "${server_names[@]}" "${node_names[@]}"; do
    give_release "$name"
    inventory "$name" >"$work/$name.before"
  done
}

run_steps() {
  if ((${#server_names[@]} > 1)); then
    servers_steps
    return 0
  fi
  first_half
  if [[ ${VM_HALF:-} ]]; then return 0; fi
  second_half
}

first_half() {
  step "boot $((nodes + 1)) VMs ($accel)" boot
  step "unpack the release on them" take_inventories
  step "refuse what cannot work" early_failures
  step "provision the server" provision_server
  step "provision and join $nodes nodes" provision_nodes
  step "roll out nginx" roll_out
  step "fetch the page through the ClusterIP from every node" pages
  step "find the page by its Service's name in a pod of every node" names
  step "nft reads the rules of Services" tables
  step "logs and exec" logs_and_exec
  step "pod starts" pod_starts
  step "what a node looks like" show_node
  step "restart all services: pods untouched" untouched do_restart
  step "SIGKILL all services: pods untouched" untouched do_kill
}

second_half() {
  if ((${#pod_nodes[@]} > 1)); then step "100 MB between pods of two subnets" transfer; fi
  step "limits and OOM in cgroup v2" limits_hold
  step "a full disk: pods are evicted" full_disk
  step "a wrong clock is reported" wrong_clock
  step "a new address by DHCP: pods untouched" new_address
  step "rolling update" rolling_update
  step "upgrade by provision.sh: pods untouched" untouched do_upgrade
  step "provision.sh again: nothing happens" again_changes_nothing
  step "reboot a node" reboot_node
  step "reboot the server" reboot_server
  step "power cut of a node: eviction, and return" power_cut
  step "uninstall: nothing is left" uninstall
  step "control plane and node on one machine (ROLE=up)" both_on_one
}
