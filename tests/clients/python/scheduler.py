"""A scheduler of a few lines, for pods of schedulerName "foreign": each goes to the last node by name."""

import sys

from kubernetes import client, config, watch

config.load_kube_config()
core = client.CoreV1Api()


def bind(pod):
    names = sorted(node.metadata.name for node in core.list_node().items)
    target = client.V1ObjectReference(api_version="v1", kind="Node", name=names[-1])
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.metadata.name), target=target)
    # The answer is a Status, which the client takes for a Binding.
    core.create_namespaced_binding(pod.metadata.namespace, binding, _preload_content=False)


left = int(sys.argv[1])
selector = "spec.schedulerName=foreign,spec.nodeName="
for event in watch.Watch().stream(core.list_pod_for_all_namespaces, field_selector=selector, timeout_seconds=60):
    if event["type"] == "ADDED":
        bind(event["object"])
        left -= 1
    if not left:
        break
