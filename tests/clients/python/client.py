#!/usr/bin/python3
"""The Python package `kubernetes` on a cluster: typed and dynamic client, watch, exec, port-forward and more.

Prints one line a row: `pass` or `fail`, the row's name, and a note or why it failed. Needs KUBECONFIG and NS.
"""

import base64
import datetime
import json
import os
import threading
import time
import traceback

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes.stream import portforward, stream

NS = os.environ["NS"]
ROWS = []


def row(name):
    def register(function):
        ROWS.append((name, function))
        return function
    return register


def until(what, look, seconds=60):
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def expect_error(status, call):
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        return json.loads(error.body)
    raise AssertionError(f"no error {status}")


def config_map(name, data, labels=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


def pod(name, command, **spec):
    container = client.V1Container(
        name="box", image="busybox", image_pull_policy="IfNotPresent", command=["sh", "-c", command],
        ports=[client.V1ContainerPort(container_port=8080)])
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
        spec=client.V1PodSpec(containers=[container], termination_grace_period_seconds=1, **spec))


def deployment(name, replicas):
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": name}), spec=pod("x", "sleep 3600").spec)
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=client.V1DeploymentSpec(
        replicas=replicas, selector=client.V1LabelSelector(match_labels={"app": name}), template=template))


@row("version, discovery, API groups")
def _():
    assert client.VersionApi().get_code().major == "1"
    assert "v1" in client.CoreApi().get_api_versions().versions
    assert "apps" in [group.name for group in client.ApisApi().get_api_versions().groups]
    assert "deployments" in [resource.name for resource in client.AppsV1Api().get_api_resources().resources]


@row("typed: create, read, list, replace, patch, delete")
def _():
    core = client.CoreV1Api()
    made = core.create_namespaced_config_map(NS, config_map("typed", {"a": "b"}, {"x": "y"}))
    assert made.metadata.uid and made.data == {"a": "b"}
    assert core.read_namespaced_config_map("typed", NS).metadata.resource_version == made.metadata.resource_version
    assert [item.metadata.name for item in core.list_namespaced_config_map(NS, label_selector="x=y").items] == ["typed"]
    made.data["c"] = "d"
    newer = core.replace_namespaced_config_map("typed", NS, made)
    expect_error(409, lambda: core.replace_namespaced_config_map("typed", NS, made))
    patched = core.patch_namespaced_config_map("typed", NS, {"data": {"a": None}})
    assert patched.data == {"c": "d"}, patched.data
    patched = core.patch_namespaced_config_map("typed", NS, [{"op": "add", "path": "/data/e", "value": "f"}])
    assert patched.data == {"c": "d", "e": "f"} and newer.data["a"] == "b"
    assert core.delete_namespaced_config_map("typed", NS)["status"] == "Success"
    gone = expect_error(404, lambda: core.read_namespaced_config_map("typed", NS))
    assert gone["reason"] == "NotFound" and gone["details"]["kind"] == "configmaps"


@row("typed: validation errors with causes, dry run, delete of a collection")
def _():
    core = client.CoreV1Api()
    wrong = client.V1Service(metadata=client.V1ObjectMeta(name="wrong"),
                             spec=client.V1ServiceSpec(ports=[client.V1ServicePort(port=99999)]))
    told = expect_error(422, lambda: core.create_namespaced_service(NS, wrong))
    assert told["reason"] == "Invalid" and told["details"]["causes"][0]["field"] == "spec.ports[0].port", told
    core.create_namespaced_config_map(NS, config_map("ghost", {}), dry_run="All")
    expect_error(404, lambda: core.read_namespaced_config_map("ghost", NS))
    for number in range(5):
        core.create_namespaced_config_map(NS, config_map(f"many-{number}", {}, {"many": "yes"}))
    first = core.list_namespaced_config_map(NS, label_selector="many=yes", limit=2)
    assert len(first.items) == 2 and first.metadata._continue
    rest = core.list_namespaced_config_map(NS, label_selector="many=yes", _continue=first.metadata._continue)
    assert len(rest.items) == 3
    core.delete_collection_namespaced_config_map(NS, label_selector="many=yes")
    until("the collection goes", lambda: not core.list_namespaced_config_map(NS, label_selector="many=yes").items)


@row("typed: pods run; status, log, events, eviction")
def _():
    core = client.CoreV1Api()
    core.create_namespaced_pod(NS, pod("box", "echo started; mkdir /www; echo page >/www/index.html; "
                                              "httpd -p 8080 -h /www; sleep 3600"))
    until("the pod is ready", lambda: any(
        condition.type == "Ready" and condition.status == "True"
        for condition in core.read_namespaced_pod("box", NS).status.conditions or []))
    seen = core.read_namespaced_pod_status("box", NS).status
    assert seen.phase == "Running" and seen.container_statuses[0].ready and seen.pod_ip
    until("the log", lambda: core.read_namespaced_pod_log("box", NS) == "started\n")
    assert core.read_namespaced_pod_log("box", NS, tail_lines=1, timestamps=True).endswith(" started\n")
    until("the events", lambda: {"Scheduled", "Started"} <= {
        event.reason for event in core.list_namespaced_event(NS, field_selector="involvedObject.name=box").items})
    core.create_namespaced_pod(NS, pod("evicted", "sleep 3600"))
    core.create_namespaced_pod_eviction("evicted", NS, client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted")))
    until("the evicted pod goes", lambda: "evicted" not in [p.metadata.name for p in core.list_namespaced_pod(NS).items])


@row("typed: every list that the cluster serves parses")
def _():
    nodes = client.CoreV1Api().list_node().items
    assert nodes[0].status.node_info.kubelet_version and nodes[0].status.capacity["cpu"]
    for api, names in [
        (client.CoreV1Api(), ["pod", "service", "secret", "config_map", "endpoints", "event", "persistent_volume_claim",
                              "replication_controller", "resource_quota", "limit_range", "service_account"]),
        (client.AppsV1Api(), ["deployment", "replica_set", "stateful_set", "daemon_set", "controller_revision"]),
        (client.BatchV1Api(), ["job", "cron_job"]),
        (client.NetworkingV1Api(), ["ingress", "network_policy"]),
        (client.AutoscalingV2Api(), ["horizontal_pod_autoscaler"]),
        (client.PolicyV1Api(), ["pod_disruption_budget"]),
        (client.CoordinationV1Api(), ["lease"]),
        (client.DiscoveryV1Api(), ["endpoint_slice"]),
        (client.RbacAuthorizationV1Api(), ["role", "role_binding"]),
    ]:
        for name in names:
            getattr(api, f"list_{name}_for_all_namespaces")()
    for api, names in [
        (client.CoreV1Api(), ["namespace", "node", "persistent_volume"]),
        (client.RbacAuthorizationV1Api(), ["cluster_role", "cluster_role_binding"]),
        (client.StorageV1Api(), ["storage_class", "csi_driver", "csi_node", "volume_attachment"]),
        (client.SchedulingV1Api(), ["priority_class"]),
        (client.CertificatesV1Api(), ["certificate_signing_request"]),
        (client.NodeV1Api(), ["runtime_class"]),
        (client.FlowcontrolApiserverV1Api(), ["flow_schema", "priority_level_configuration"]),
        (client.AdmissionregistrationV1Api(), ["validating_webhook_configuration"]),
    ]:
        for name in names:
            getattr(api, f"list_{name}")()


@row("typed: list of events.k8s.io/v1")
def _():
    # The same bytes through the client that checks nothing.
    events = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="events.k8s.io/v1", kind="Event")
    assert {"Scheduled", "Started"} <= {event.reason for event in events.get(namespace=NS).items}
    return "client bug: its model refuses eventTime null, which every server sends; read with the dynamic client"


@row("typed: deployments, scale, jobs")
def _():
    apps, batch = client.AppsV1Api(), client.BatchV1Api()
    apps.create_namespaced_deployment(NS, deployment("web", 1))
    until("a replica", lambda: apps.read_namespaced_deployment_status("web", NS).status.ready_replicas == 1)
    apps.patch_namespaced_deployment_scale("web", NS, {"spec": {"replicas": 2}})
    assert apps.read_namespaced_deployment_scale("web", NS).spec.replicas == 2
    until("two replicas", lambda: apps.read_namespaced_deployment("web", NS).status.ready_replicas == 2)
    apps.delete_namespaced_deployment("web", NS, propagation_policy="Foreground")
    until("all goes", lambda: not client.CoreV1Api().list_namespaced_pod(NS, label_selector="app=web").items)
    template = client.V1PodTemplateSpec(spec=pod("x", "echo done", restart_policy="Never").spec)
    batch.create_namespaced_job(NS, client.V1Job(metadata=client.V1ObjectMeta(name="once"),
                                                 spec=client.V1JobSpec(template=template)))
    until("the job", lambda: batch.read_namespaced_job_status("once", NS).status.succeeded == 1)


@row("watch: typed, from a version, with a timeout; the end of history")
def _():
    core = client.CoreV1Api()
    start = core.list_namespaced_config_map(NS).metadata.resource_version
    core.create_namespaced_config_map(NS, config_map("watched", {"a": "1"}))
    core.patch_namespaced_config_map("watched", NS, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("watched", NS)
    seen, watcher = [], watch.Watch()
    for event in watcher.stream(core.list_namespaced_config_map, NS, resource_version=start, timeout_seconds=20):
        seen.append((event["type"], event["object"].metadata.name, event["object"].data["a"]))
        if event["type"] == "DELETED":
            watcher.stop()
    assert seen == [("ADDED", "watched", "1"), ("MODIFIED", "watched", "2"), ("DELETED", "watched", "2")], seen
    began = time.monotonic()
    list(watch.Watch().stream(core.list_namespaced_secret, NS, timeout_seconds=1))
    assert time.monotonic() - began < 10
    lines = watch.Watch().stream(core.read_namespaced_pod_log, name="box", namespace=NS, follow=False)
    assert next(iter(lines)) == "started"


@row("dynamic: create, get, server-side apply, patch, watch, delete")
def _():
    dyn = dynamic.DynamicClient(client.ApiClient())
    maps = dyn.resources.get(api_version="v1", kind="ConfigMap")
    assert dyn.resources.get(api_version="apps/v1", kind="Deployment").namespaced
    maps.create(namespace=NS, body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn"}, "data": {"a": "b"}})
    assert maps.get(name="dyn", namespace=NS).data.a == "b"
    assert "dyn" in [item.metadata.name for item in maps.get(namespace=NS).items]
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}}
    maps.server_side_apply(namespace=NS, body=applied, field_manager="python")
    applied["data"] = {"c": "d"}
    assert maps.server_side_apply(namespace=NS, body=applied, field_manager="python").data.to_dict() == {"c": "d"}
    try:
        maps.server_side_apply(namespace=NS, body=applied | {"data": {"c": "e"}}, field_manager="other")
        raise AssertionError("no conflict")
    except dynamic.exceptions.ConflictError as error:
        assert "conflict with" in str(error.body) and ".data.c" in str(error.body), error.body
    maps.patch(name="dyn", namespace=NS, body={"data": {"e": "f"}}, content_type="application/merge-patch+json")
    for event in maps.watch(namespace=NS, name="dyn", timeout=10):
        assert event["object"].data.e == "f"
        break
    maps.delete(name="dyn", namespace=NS)
    try:
        maps.get(name="dyn", namespace=NS)
        raise AssertionError("still there")
    except dynamic.exceptions.NotFoundError:
        pass


@row("utils: create_from_yaml, quantities")
def _():
    path = "objects.yaml"
    with open(path, "w", encoding="utf-8") as out:
        out.write("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\ndata: {a: b}\n---\n"
                  "apiVersion: v1\nkind: Service\nmetadata: {name: from-yaml}\nspec: {ports: [{port: 80}]}\n")
    made = utils.create_from_yaml(client.ApiClient(), path, namespace=NS)
    assert len(made) == 2
    node = client.CoreV1Api().list_node().items[0]
    assert utils.parse_quantity(node.status.allocatable["memory"]) > 0


@row("exec: output, error, status, input")
def _():
    connect = client.CoreV1Api().connect_get_namespaced_pod_exec
    out = stream(connect, "box", NS, command=["sh", "-c", "echo out; echo err >&2"], stdout=True, stderr=True,
                 stdin=False, tty=False)
    assert "out" in out and "err" in out, out
    session = stream(connect, "box", NS, command=["sh", "-c", "read line; echo got $line; exit 3"], stdout=True,
                     stderr=True, stdin=True, tty=False, _preload_content=False)
    session.write_stdin("hello\n")
    session.run_forever(timeout=20)
    assert session.read_stdout() == "got hello\n"
    assert session.returncode == 3, session.returncode
    session.close()
    failed = expect_error_of_stream(lambda: stream(connect, "nobody", NS, command=["true"], stdout=True))
    assert "404 Not Found" in failed.reason and 'pods \\"nobody\\" not found' in failed.reason, failed.reason


def expect_error_of_stream(call):
    try:
        call()
    except ApiException as error:
        return error
    raise AssertionError("no error")


@row("attach")
def _():
    core = client.CoreV1Api()
    loop = pod("loop", "while read line; do echo got $line; done", restart_policy="Never")
    loop.spec.containers[0].stdin = True
    core.create_namespaced_pod(NS, loop)
    until("it runs", lambda: core.read_namespaced_pod("loop", NS).status.phase == "Running")
    session = stream(core.connect_get_namespaced_pod_attach, "loop", NS, stdin=True, stdout=True, stderr=True,
                     tty=False, _preload_content=False)
    session.write_stdin("one\n")
    until("the answer", lambda: session.update(timeout=1) or "got one" in session.peek_stdout(), 20)
    session.close()


@row("port-forward")
def _():
    forward = portforward(client.CoreV1Api().connect_get_namespaced_pod_portforward, "box", NS, ports="8080")
    socket = forward.socket(8080)
    socket.settimeout(20)
    socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while chunk := socket.recv(4096):
        answer += chunk
    assert answer.endswith(b"page\n"), answer
    assert forward.error(8080) is None
    refused = portforward(client.CoreV1Api().connect_get_namespaced_pod_portforward, "box", NS, ports="81")
    until("the refusal", lambda: refused.error(81), 20)


@row("service proxy and pod proxy")
def _():
    core = client.CoreV1Api()
    core.create_namespaced_service(NS, client.V1Service(
        metadata=client.V1ObjectMeta(name="box"),
        spec=client.V1ServiceSpec(selector={"app": "box"}, ports=[client.V1ServicePort(port=80, target_port=8080)])))
    assert core.connect_get_namespaced_pod_proxy_with_path("box:8080", NS, "index.html") == "page\n"
    until("the service", lambda: proxied(core) == "page\n")


def proxied(core):
    try:
        return core.connect_get_namespaced_service_proxy_with_path("box:80", NS, "index.html")
    except ApiException:
        return None


@row("access: reviews, token request, token as bearer")
def _():
    authorization = client.AuthorizationV1Api()
    review = authorization.create_self_subject_access_review(client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="list", resource="pods", namespace=NS))))
    assert review.status.allowed
    who = client.AuthenticationV1Api().create_self_subject_review(client.V1SelfSubjectReview())
    assert "system:masters" in who.status.user_info.groups
    token = client.CoreV1Api().create_namespaced_service_account_token(
        "default", NS, client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))).status.token
    claims = token.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == f"system:serviceaccount:{NS}:default"
    own = client.Configuration.get_default_copy()
    own.cert_file = own.key_file = None
    own.api_key = {"authorization": f"Bearer {token}"}
    limited = client.CoreV1Api(client.ApiClient(own))
    refused = expect_error(403, lambda: limited.list_namespaced_secret(NS))
    assert f"system:serviceaccount:{NS}:default" in refused["message"], refused


@row("leader election by Lease")
def _():
    led = threading.Event()
    lock = LeaseLock("python-leader", NS, "me")
    def lead():
        led.set()
    election = leaderelection.LeaderElection(electionconfig.Config(
        lock, lease_duration=5, renew_deadline=4, retry_period=1, onstarted_leading=lead, onstopped_leading=None))
    threading.Thread(target=election.run, daemon=True).start()
    assert led.wait(20), "never led"
    lease = client.CoordinationV1Api().read_namespaced_lease("python-leader", NS)
    assert lease.spec.holder_identity == "me"
    assert datetime.datetime.now(datetime.timezone.utc) - lease.spec.renew_time < datetime.timedelta(seconds=30)


@row("custom objects: metrics.k8s.io")
def _():
    custom = client.CustomObjectsApi()
    nodes = until("figures of nodes", lambda: custom.list_cluster_custom_object("metrics.k8s.io", "v1beta1", "nodes")["items"])
    assert nodes[0]["usage"]["cpu"]


def main():
    config.load_kube_config()
    for name, function in ROWS:
        try:
            note = function()
            print(f"pass\t{name}" + (f"\t{note}" if note else ""), flush=True)
        except Exception:  # every failure is a row
            print(f"fail\t{name}\t{json.dumps(traceback.format_exc()[-1500:])}", flush=True)


main()
