#!/usr/bin/python3
"""An operator that is written with the Python package `kopf`, for a kind of its own.

Prints one line a row: `pass` or `fail`, the row's name, and why it failed. Needs KUBECONFIG and NS.
"""

import json
import os
import sys
import threading
import time
import traceback

import kopf
from kubernetes import client, config
from kubernetes.client.rest import ApiException

NS = os.environ["NS"]
GROUP, VERSION, PLURAL = f"{NS}.boats.example", "v1", "boats"
KIND = (GROUP, VERSION, PLURAL)
BOATS = (GROUP, VERSION, NS, PLURAL)
ROWS = []
# What handlers were called for, in order.
SEEN = []


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
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s; seen: {SEEN}"
        time.sleep(0.05)


@kopf.on.startup()
def settings(settings, **_):
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)


@kopf.on.create(*KIND)
def launched(spec, name, body, patch, retry, **_):
    if spec["sails"] == 13 and retry < 2:
        raise kopf.TemporaryError("no wind yet", delay=0.1)
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-log"}, "data": {}}
    kopf.adopt(child)
    client.CoreV1Api().create_namespaced_config_map(NS, child)
    patch.status["phase"] = "Afloat"
    kopf.info(body, reason="Launched", message=f"after {retry} tries")
    SEEN.append(("create", name, retry))
    return {"sails": spec["sails"]}


@kopf.on.update(*KIND)
def rigged(name, diff, **_):
    changes = [(".".join(path), old, new) for _, path, old, new in diff if path[0] == "spec"]
    SEEN.append(("update", name, changes))


@kopf.on.field(*KIND, field="spec.sails", old=kopf.PRESENT)
def sails(name, old, new, **_):
    SEEN.append(("field", name, old, new))


@kopf.on.delete(*KIND)
def sunk(name, **_):
    SEEN.append(("delete", name))


@kopf.on.resume(*KIND)
def resumed(name, **_):
    SEEN.append(("resume", name))


@kopf.timer(*KIND, interval=0.2, labels={"clock": "yes"})
def ticked(name, patch, status, **_):
    patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.daemon(*KIND, labels={"crew": "yes"})
def manned(name, stopped, **_):
    SEEN.append(("daemon", name))
    stopped.wait(30)
    SEEN.append(("daemon stops", name))


@kopf.index(*KIND)
def by_sails(spec, name, **_):
    return {spec["sails"]: name}


@kopf.on.event("configmaps", labels={"asks": "yes"})
def asked(event, by_sails, **_):
    if event["type"] != "DELETED":
        SEEN.append(("index", sorted(by_sails.get(2, []))))


class Operator:
    """The operator, in a thread of its own."""

    def __enter__(self):
        self.stop, ready = threading.Event(), threading.Event()
        run = {"standalone": True, "namespaces": [NS], "stop_flag": self.stop, "ready_flag": ready}
        self.thread = threading.Thread(target=kopf.run, kwargs=run, daemon=True)
        self.thread.start()
        assert ready.wait(60), "the operator is not ready"
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), "the operator does not end"


def boat(name, count, labels=None):
    return client.CustomObjectsApi().create_namespaced_custom_object(*BOATS, {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "Boat", "metadata": {"name": name, "labels": labels or {}},
        "spec": {"sails": count}})


def read(name):
    return client.CustomObjectsApi().get_namespaced_custom_object(*BOATS, name)


def seen(what):
    return until(f"{what}", lambda: what in SEEN)


@row("operator: creation, children with an owner, status, an event")
def _():
    made = boat("first", 2)
    seen(("create", "first", 0))
    until("the status is written", lambda: read("first").get("status", {}).get("phase") == "Afloat")
    until("the result is kept", lambda: read("first")["status"].get("launched") == {"sails": 2})
    child = client.CoreV1Api().read_namespaced_config_map("first-log", NS)
    assert child.metadata.owner_references[0].uid == made["metadata"]["uid"]
    assert read("first")["metadata"]["finalizers"] == [f"{GROUP}/finalizer"]

    def told():
        events = client.CoreV1Api().list_namespaced_event(NS, field_selector="reason=Launched").items
        return [event for event in events if event.involved_object.name == "first"]
    assert until("the event is there", told)[0].message == "after 0 tries"


@row("operator: a change and what it changes, one field, an index")
def _():
    client.CustomObjectsApi().patch_namespaced_custom_object(*BOATS, "first", {"spec": {"sails": 3}})
    seen(("update", "first", [("spec.sails", 2, 3)]))
    seen(("field", "first", 2, 3))
    boat("second", 2)
    seen(("create", "second", 0))
    client.CoreV1Api().create_namespaced_config_map(
        NS, {"metadata": {"name": "question", "labels": {"asks": "yes"}}})
    seen(("index", ["second"]))


@row("operator: what fails is tried again; timers and daemons")
def _():
    boat("late", 13, {"clock": "yes", "crew": "yes"})
    seen(("create", "late", 2))
    until("it ticks", lambda: read("late").get("status", {}).get("ticks", 0) >= 3)
    seen(("daemon", "late"))


@row("operator: what was there when it starts again")
def _():
    until("it stands still", lambda: read("second").get("status", {}).get("launched"))
    assert ("resume", "second") not in SEEN
    global OPERATOR
    OPERATOR.__exit__()
    client.CustomObjectsApi().patch_namespaced_custom_object(*BOATS, "second", {"spec": {"sails": 5}})
    OPERATOR = Operator().__enter__()
    seen(("resume", "first"))
    seen(("update", "second", [("spec.sails", 2, 5)]))


@row("operator: deletion waits for its finalizer, children are collected")
def _():
    core = client.CoreV1Api()
    for name in ("first", "late"):
        client.CustomObjectsApi().delete_namespaced_custom_object(*BOATS, name)
        seen(("delete", name))
    seen(("daemon stops", "late"))

    def gone(look):
        try:
            look()
        except ApiException as error:
            return error.status == 404
        return False
    for name in ("first", "late"):
        until(f"{name} is gone", lambda: gone(lambda: read(name)))
        until(f"{name}-log is gone", lambda: gone(lambda: core.read_namespaced_config_map(f"{name}-log", NS)))
    assert core.read_namespaced_config_map("second-log", NS)


def define():
    number = {"type": "object", "required": ["sails"], "properties": {"sails": {"type": "integer", "minimum": 1}}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": number, "status": status}}
    definitions = client.ApiextensionsV1Api()
    definitions.create_custom_resource_definition({
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": PLURAL, "kind": "Boat"}, "versions": [
            {"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": schema}}]}})

    def established():
        conditions = definitions.read_custom_resource_definition(f"{PLURAL}.{GROUP}").status.conditions or []
        return any(condition.type == "Established" and condition.status == "True" for condition in conditions)
    until("it is established", established)


OPERATOR = None


def main():
    global OPERATOR
    config.load_kube_config()
    define()
    OPERATOR = Operator().__enter__()
    failed = False
    for name, function in ROWS:
        try:
            function()
            print(f"pass\t{name}", flush=True)
        except Exception:
            failed = True
            print(f"fail\t{name}\t{json.dumps(traceback.format_exc())}", flush=True)
    OPERATOR.__exit__()
    sys.exit(1 if failed else 0)


main()
