//! The objects: what volumes are made of, and pods that say what they find in them.

use serde_json::{Value, json};

/// Volumes of one pod, each of an object of its own.
pub(super) const MANY: usize = 40;

/// A volume of one object in one of the ways to ask for it.
struct Way {
    name: &'static str,
    default_mode: Option<u32>,
    items: Option<Value>,
    shows: &'static str,
}

fn ways() -> [Way; 5] {
    let mapped = |mode: Option<u32>| {
        let mut item = json!({"key": "data-2", "path": "path/to/data-2"});
        if let Some(mode) = mode {
            item["mode"] = json!(mode);
        }
        Some(json!([item]))
    };
    let way = |name, default_mode, items, shows| Way {
        name,
        default_mode,
        items,
        shows,
    };
    [
        way("plain", None, None, "data-1 644 value-1"),
        way("again", None, None, "data-1 644 value-1"),
        way("mode", Some(0o400), None, "data-1 400 value-1"),
        way("mapped", None, mapped(None), "path/to/data-2 644 value-2"),
        way(
            "mapped-mode",
            None,
            mapped(Some(0o400)),
            "path/to/data-2 400 value-2",
        ),
    ]
}

/// Each way of each source: name and source.
fn volumes() -> Vec<(String, &'static str, Value)> {
    let mut volumes = Vec::new();
    for way in ways() {
        for (kind, key) in [("configMap", "name"), ("secret", "secretName")] {
            let mut source = json!({key: "settings", "items": way.items});
            let mut projected =
                json!({"sources": [{kind: {"name": "settings", "items": way.items}}]});
            if let Some(mode) = way.default_mode {
                source["defaultMode"] = json!(mode);
                projected["defaultMode"] = json!(mode);
            }
            let name = format!("{}-{}", kind.to_lowercase(), way.name);
            volumes.push((
                format!("{name}-projected"),
                way.shows,
                json!({"projected": projected}),
            ));
            volumes.push((name, way.shows, json!({kind: source})));
        }
    }
    volumes
}

/// What the containers of [`files`] say.
pub(super) fn files_expected() -> Vec<String> {
    let lines = volumes().into_iter();
    let lines = lines.map(|(name, shows, _)| format!("/{name}/{shows}"));
    lines
        .chain(["/binary/bytes 644 deadbeef".to_owned()])
        .collect()
}

fn container(name: &str, script: &str, mounts: &Value) -> Value {
    json!({
        "name": name, "image": "busybox", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-ec", script], "volumeMounts": mounts,
    })
}

fn pod(name: &str, containers: &Value, volumes: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": containers, "volumes": volumes,
    }})
}

/// What volumes are made of, and a Secret of the same name elsewhere.
pub(super) fn sources() -> Vec<Value> {
    let data = json!({"data-1": "value-1", "data-2": "value-2"});
    let object = |kind: &str, name: &str, data: &Value| {
        let key = if kind == "Secret" {
            "stringData"
        } else {
            "data"
        };
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, key: data})
    };
    let mut elsewhere = object("Secret", "settings", &json!({"data-1": "another's"}));
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let mut sources = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}),
        elsewhere,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "binary"}, "binaryData": {"bytes": "3q2+7w=="}}),
    ];
    for kind in ["ConfigMap", "Secret"] {
        sources.push(object(kind, "settings", &data));
        sources.push(object(kind, "changing", &json!({"key": "old"})));
        sources.push(object(kind, "going", &json!({"key": "here"})));
    }
    sources.extend((0..MANY).map(|n| {
        object(
            "ConfigMap",
            &format!("many-{n}"),
            &json!({"content": format!("content-{n}")}),
        )
    }));
    sources
}

/// One container is root, one is not and reads what everybody may.
pub(super) fn files() -> Value {
    let all = volumes();
    let mounts = all
        .iter()
        .map(|(name, ..)| json!({"name": name, "mountPath": format!("/{name}")}))
        .chain([json!({"name": "binary", "mountPath": "/binary"})]);
    let mounts = json!(mounts.collect::<Vec<_>>());
    let script = |all: &[String]| {
        let files = all
            .iter()
            .filter_map(|line| line.split(' ').next())
            .filter(|file| !file.starts_with("/binary"))
            .collect::<Vec<_>>();
        format!(
            "for f in {}; do echo $f $(stat -L -c %a $f) $(cat $f); done
             echo /binary/bytes $(stat -L -c %a /binary/bytes) $(hexdump -v -e '/1 \"%02x\"' /binary/bytes)",
            files.join(" ")
        )
    };
    let expected = files_expected();
    let readable: Vec<_> = expected
        .iter()
        .filter(|line| line.contains(" 644 "))
        .cloned()
        .collect();
    let mut user = container("user", &script(&readable), &mounts);
    user["securityContext"] = json!({"runAsUser": 1000});
    let volumes = all.into_iter().map(|(name, _, source)| {
        let mut volume = source;
        volume["name"] = json!(name);
        volume
    });
    let volumes = volumes.chain([json!({"name": "binary", "configMap": {"name": "binary"}})]);
    pod(
        "files",
        &json!([container("root", &script(&expected), &mounts), user]),
        &json!(volumes.collect::<Vec<_>>()),
    )
}

/// Somebody without rights of its own reads what is the pod's group's.
pub(super) fn grouped() -> Value {
    let script = "for f in /secret/data-1 /projected/data-1; do echo $f $(stat -L -c '%a %g' $f) $(cat $f); done";
    let mounts = json!([{"name": "secret", "mountPath": "/secret"}, {"name": "projected", "mountPath": "/projected"}]);
    let volumes = json!([
        {"name": "secret", "secret": {"secretName": "settings", "defaultMode": 0o440}},
        {"name": "projected", "projected": {"defaultMode": 0o440, "sources": [{"secret": {"name": "settings"}}]}},
    ]);
    let mut pod = pod(
        "grouped",
        &json!([container("user", script, &mounts)]),
        &volumes,
    );
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 1001});
    pod
}

/// The pod itself, as files: of a container with limits, and of one that has the node's.
pub(super) fn pod_files() -> Value {
    let resource = |path: &str, container: &str, resource: &str| {
        let of = json!({"containerName": container, "resource": resource});
        json!({"path": path, "resourceFieldRef": of})
    };
    let field =
        |path: &str| json!({"path": path, "fieldRef": {"fieldPath": format!("metadata.{path}")}});
    let mut name = field("name");
    name["mode"] = json!(0o400);
    let items = json!([
        name,
        field("labels"),
        field("annotations"),
        resource("cpu-limit", "downward", "limits.cpu"),
        resource("cpu-request", "downward", "requests.cpu"),
        resource("memory-limit", "downward", "limits.memory"),
        resource("memory-request", "downward", "requests.memory"),
        resource("node-cpu", "projected", "limits.cpu"),
        resource("node-memory", "projected", "limits.memory"),
    ]);
    let strict = json!([field("name")]);
    let volumes = json!([
        {"name": "downward", "downwardAPI": {"items": items}},
        {"name": "downward-strict", "downwardAPI": {"items": strict, "defaultMode": 0o400}},
        {"name": "projected", "projected": {"sources": [{"downwardAPI": {"items": items}}]}},
        {"name": "projected-strict", "projected": {"sources": [{"downwardAPI": {"items": strict}}], "defaultMode": 0o400}},
    ]);
    let of = |volume: &str| {
        let strict = format!("{volume}-strict");
        let mounts = json!([
            {"name": volume, "mountPath": format!("/{volume}")},
            {"name": strict, "mountPath": format!("/{strict}")},
        ]);
        let script = format!(
            "for f in name labels annotations cpu-limit cpu-request memory-limit memory-request node-cpu node-memory; do
               f=/{volume}/$f; echo $f $(stat -L -c %a $f) $(cat $f)
             done
             f=/{strict}/name; echo $f $(stat -L -c %a $f) $(cat $f)"
        );
        container(volume, &script, &mounts)
    };
    let mut limited = of("downward");
    limited["resources"] = json!({
        "requests": {"cpu": "250m", "memory": "32Mi"},
        "limits": {"cpu": "1250m", "memory": "64Mi"},
    });
    let mut pod = pod("pod-files", &json!([limited, of("projected")]), &volumes);
    pod["metadata"]["labels"] = json!({"colour": "blue"});
    pod["metadata"]["annotations"] = json!({"note": "some text"});
    pod
}

/// Parts of volumes, one of them in the place of a file of the image.
pub(super) fn parts() -> Value {
    let downward = json!([{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let volumes = json!([
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "secret", "secret": {"secretName": "settings"}},
        {"name": "projected", "projected": {"sources": [{"configMap": {"name": "settings"}}]}},
        {"name": "downward", "downwardAPI": {"items": downward}},
    ]);
    let mounts = json!([
        {"name": "config", "mountPath": "/config/data-2", "subPath": "data-2"},
        {"name": "config", "mountPath": "/etc/nsswitch.conf", "subPath": "data-1"},
        {"name": "secret", "mountPath": "/secret/data-2", "subPath": "data-2"},
        {"name": "projected", "mountPath": "/projected/data-2", "subPath": "data-2"},
        {"name": "downward", "mountPath": "/downward/name", "subPath": "name"},
    ]);
    let script = "for f in /config/data-2 /etc/nsswitch.conf /secret/data-2 /projected/data-2 /downward/name; do
                    echo $f $(cat $f)
                  done";
    pod(
        "parts",
        &json!([container("main", script, &mounts)]),
        &volumes,
    )
}

/// On the disk and in memory, for root and for another.
pub(super) fn empty() -> Value {
    let script = |shared: &str| {
        format!(
            "umask 0
             for m in default memory; do
               echo /$m $(stat -c '%a %A' /$m)
               for p in 644 666 777; do
                 f=/$m/$(id -u)-$p; echo content >$f; chmod $p $f; echo $f $(stat -c '%a %u' $f) $(cat $f)
               done
             done
             awk '$2 == \"/memory\" {{print $2 \" is \" $3}}' /proc/mounts
             {shared}
             cat /default/shared"
        )
    };
    let mounts = json!([{"name": "default", "mountPath": "/default"}, {"name": "memory", "mountPath": "/memory"}]);
    let volumes = json!([
        {"name": "default", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]);
    let writes = "echo shared >/default/new; mv /default/new /default/shared";
    let reads = "until [ -e /default/shared ]; do sleep 0.1; done";
    let root = container("root", &script(writes), &mounts);
    let mut user = container("user", &script(reads), &mounts);
    user["securityContext"] = json!({"runAsUser": 1001});
    pod("empty", &json!([root, user]), &volumes)
}

/// So many that they would get in each other's way if they could.
pub(super) fn many() -> Value {
    let names: Vec<_> = (0..MANY).map(|n| format!("many-{n}")).collect();
    let volumes = names
        .iter()
        .map(|name| json!({"name": name, "configMap": {"name": name}}));
    let mounts = names
        .iter()
        .map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    let script = format!(
        "cd /; for v in {}; do cat $v/content; echo; done",
        names.join(" ")
    );
    let (volumes, mounts) = (
        json!(volumes.collect::<Vec<_>>()),
        json!(mounts.collect::<Vec<_>>()),
    );
    pod(
        "many",
        &json!([container("main", &script, &mounts)]),
        &volumes,
    )
}

/// One that goes on, while objects change, go and come.
pub(super) fn changing() -> Value {
    let field =
        |path: &str| json!({"path": path, "fieldRef": {"fieldPath": format!("metadata.{path}")}});
    let items = json!([field("labels"), field("annotations")]);
    let mut volumes = vec![
        json!({"name": "pod", "downwardAPI": {"items": items}}),
        json!({"name": "pod-projected", "projected": {"sources": [{"downwardAPI": {"items": items}}]}}),
    ];
    for (object, optional) in [("changing", false), ("going", true), ("coming", true)] {
        for (name, kind, key) in [
            ("config", "configMap", "name"),
            ("secret", "secret", "secretName"),
        ] {
            let name = match object {
                "changing" => name.to_owned(),
                other => format!("{other}-{name}"),
            };
            let projected = json!({kind: {"name": object, "optional": optional}});
            volumes.push(json!({"name": name, kind: {key: object, "optional": optional}}));
            let projected = json!({"sources": [projected]});
            volumes.push(json!({"name": format!("{name}-projected"), "projected": projected}));
        }
    }
    let mounts = volumes.iter().map(|volume| {
        let name = volume["name"].as_str().unwrap_or_default();
        json!({"name": name, "mountPath": format!("/v/{name}")})
    });
    let mounts = json!(mounts.collect::<Vec<_>>());
    let mut pod = pod(
        "changing",
        &json!([container("main", "exec sleep 3600", &mounts)]),
        &json!(volumes),
    );
    pod["metadata"]["labels"] = json!({"colour": "blue"});
    pod
}
