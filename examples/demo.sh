#!/usr/bin/env bash
# The demo behind `make run` and `make stop`: a one-node cluster with nginx behind a Service.
#
#   examples/demo.sh start|stop BIN_DIR TOOLS_DIR IMAGES_DIR
#
# ISOLATED=1 puts everything into a network namespace of its own without an uplink: nothing can leave the machine.
# `stop` ends what it finds of both; with ISOLATED=1 that one alone. It leaves alone what this script has not started.
set -euo pipefail

action=$1 bin=$2 tools=$3 images=$4
here=$(cd "$(dirname "$0")" && pwd)

# Which of the two is meant from now on: `plain` or `isolated`.
choose() {
  if [[ $1 == isolated ]]; then
    name=coracle-demo
    cgroup=/$name
    namespace=/run/netns/$name
    # The node's address: on a bridge of its own that no other machine is attached to.
    address=198.18.0.1
  else
    name=coracle
    cgroup=/
    namespace=""
  fi
  data=/var/lib/$name run=/run/$name
  kubeconfig=$data/admin.kubeconfig
  pid_file=$run/demo.pid
  # Also the mark of what this script has started: `coracle up` by hand and provision.sh use the same directories.
  log=$data/demo.log
}

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
die() {
  printf 'examples/demo.sh: %s\n' "$*" >&2
  exit 1
}
within() { if [[ $namespace ]]; then nsenter --net="$namespace" "$@"; else "$@"; fi; }
kubectl() { within "$tools/kubectl" --kubeconfig "$kubeconfig" "$@"; }
running() { [[ -e $pid_file ]] && kill -0 "$(<"$pid_file")" 2>/dev/null; }

stages=()
stage() {
  local title=$1 begin end
  shift
  say "$title"
  begin=$(date +%s%3N)
  "$@"
  end=$(date +%s%3N)
  stages+=("$(printf '%-52s %6d ms' "$title" $((end - begin)))")
}

make_namespace() {
  [[ $namespace && ! -e $namespace ]] || return 0
  ip netns add "$name"
  within ip link set lo up
  within ip link add node0 type bridge
  within ip address add "$address/24" dev node0
  within ip link set node0 up
  # Service addresses need some route before they are translated; nothing is attached at its other end.
  within ip route add default dev node0
}

# In place of the shell: `$!` is then the cluster's own PID.
launch() { if [[ $namespace ]]; then exec nsenter --net="$namespace" setsid "$@"; else exec setsid "$@"; fi; }

# Before the first image there is nothing to list.
have_image() { "$bin/coracle" image list --data-dir "$data" 2>/dev/null | grep -q "^docker.io/library/$1:latest "; }

provide_images() {
  local image
  for image in nginx busybox; do
    if have_image "$image"; then continue; fi
    if [[ ! $namespace ]] && timeout 20 "$bin/coracle" image pull --data-dir "$data" "$image" 2>/dev/null; then continue; fi
    echo "no registry is reachable: importing $image built from Debian's package"
    "$bin/coracle" image import --data-dir "$data" "$images/$image.tar"
  done
}

start_cluster() {
  local node=()
  if [[ $namespace ]]; then node=(--bind "$address:6443" --node-ip "$address"); fi
  # A demo on a machine whose disk is nearly full is still to run.
  launch "$bin/coracle" up --data-dir "$data" --run-dir "$run" --cgroup-root "$cgroup" --eviction-hard '' "${node[@]}" \
    >"$log" 2>&1 </dev/null &
  echo $! >"$pid_file"
  local deadline=$((SECONDS + 30))
  until kubectl get --raw /readyz >/dev/null 2>&1; do
    running || { tail -n 20 "$log" >&2; die "coracle has ended; its whole log is $log"; }
    ((SECONDS < deadline)) || { tail -n 20 "$log" >&2; die "the API server is not ready after 30 s; the log is $log"; }
    sleep 0.05
  done
}

wait_for_node() { kubectl wait --for=condition=Ready node --all --timeout=60s; }
apply() { kubectl apply -f "$here/nginx.yaml"; }
roll_out() { kubectl rollout status deployment/nginx --timeout=120s; }

fetch_page() {
  local ip
  ip=$(kubectl get service nginx -o 'jsonpath={.spec.clusterIP}')
  within curl --noproxy '*' -fsS --retry 20 --retry-delay 0 --retry-max-time 10 --retry-connrefused --max-time 5 "http://$ip/"
}

go_on() {
  say "go on with"
  if [[ $namespace ]]; then
    echo "  nsenter --net=$namespace bash"
  fi
  echo "  export KUBECONFIG=$kubeconfig PATH=$tools:$bin:\$PATH"
  if [[ $namespace ]]; then
    echo "  export CORACLE_DATA_DIR=$data CORACLE_RUN_DIR=$run"
  fi
  echo "  kubectl get pods"
  echo "  coracle net svc/default/nginx  # what the node programs for it"
  echo "  kubectl apply -f $here/        # one of each example"
  echo "  make stop"
  if [[ $namespace ]]; then
    echo
    echo "No registry is reachable from in there. The images nginx and busybox are on the node, for pods that say"
    echo "imagePullPolicy: IfNotPresent; for :latest or no tag the default is to pull: ImagePullBackOff. Other images:"
    echo "  coracle image import FILE.tar"
  fi
}

start() {
  [[ $(id -u) == 0 ]] || die "a node needs root"
  if running; then
    say "it is running already (PID $(<"$pid_file")), with the binaries it was started with; 'make stop' ends it"
    go_on
    return
  fi
  [[ ! -e $data/server || -e $log ]] ||
    die "$data is a cluster's that was not started here; ISOLATED=1 starts one that shares nothing with it"
  mkdir -p "$data" "$run"
  touch "$log"
  make_namespace
  stage "images" provide_images
  stage "start the cluster" start_cluster
  stage "the node is Ready" wait_for_node
  stage "apply examples/nginx.yaml" apply
  stage "roll out 3 replicas" roll_out
  stage "fetch the page through the ClusterIP" fetch_page
  say "what is running"
  kubectl get nodes,pods,services,endpointslices -o wide
  say "how long it took"
  printf '%s\n' "${stages[@]}"
  go_on
}

is_there() { [[ -e $pid_file || -e $log || ($namespace && -e $namespace) ]]; }

stop() {
  local one ended="" kinds=(plain isolated)
  if [[ ${ISOLATED:-} ]]; then kinds=(isolated); fi
  for one in "${kinds[@]}"; do
    choose "$one"
    if is_there; then
      say "ending the $one cluster ($data)"
      stop_one
      ended=1
    fi
  done
  if [[ $ended ]]; then say "nothing is left"; else say "nothing was running, and nothing is left"; fi
}

stop_one() {
  if running; then
    say "deleting the pods"
    kubectl delete deployments,services --all -n default --timeout=60s >/dev/null || true
    kubectl delete pods --all -A --timeout=60s >/dev/null || true
    say "stopping the cluster"
    local pid deadline=$((SECONDS + 15))
    pid=$(<"$pid_file")
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do
      ((SECONDS < deadline)) || { kill -9 "$pid"; break; }
      sleep 0.1
    done
  fi
  if [[ -d $data || -d $run ]]; then
    # After a reboot it is gone, and the machine's own rules are another's.
    make_namespace
    within "$bin/coracle" reset --data-dir "$data" --run-dir "$run" --cgroup-root "$cgroup" \
      --delete-data --delete-local-volumes
  fi
  rm -rf "$run"
  if [[ $namespace && -e $namespace ]]; then ip netns delete "$name"; fi
}

if [[ ${ISOLATED:-} ]]; then choose isolated; else choose plain; fi
case $action in
start) start ;;
stop) stop ;;
*) die "usage: $0 start|stop BIN_DIR TOOLS_DIR IMAGES_DIR" ;;
esac
