//! What the pods of a StatefulSet keep on their volumes, and what is seen of it.

use coracle_tests::{
    kubectl::{Kubectl, PATIENCE},
    wait,
};

/// Each pod marks its volume once, and writes to it from then on who it is.
pub(super) const SET: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: db
        image: busybox
        imagePullPolicy: IfNotPresent
        command:
        - sh
        - -c
        - |
          trap 'exit 0' TERM
          [ -e /data/mark ] || { cat /proc/sys/kernel/random/uuid >/data/new; mv /data/new /data/mark; }
          while :; do echo "$POD" >>/data/who; sleep 0.2; done
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]
        readinessProbe: {exec: {command: [test, -s, /data/mark]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
"#;

/// A volume and whose it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) phase: String,
    /// The claim's UID.
    pub(super) claim: String,
    pub(super) path: String,
}

/// All volumes of the cluster.
pub(super) fn volumes(kubectl: &Kubectl) -> Vec<Volume> {
    let list = kubectl.json("pv");
    let text = |volume: &serde_json::Value, pointer: &str| {
        volume
            .pointer(pointer)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let items = list["items"].as_array().expect("items");
    let items = items.iter().map(|volume| Volume {
        name: text(volume, "/metadata/name"),
        phase: text(volume, "/status/phase"),
        claim: text(volume, "/spec/claimRef/uid"),
        path: text(volume, "/spec/local/path"),
    });
    items.collect()
}

/// What the first `count` pods have marked their volumes with.
pub(super) fn marks(kubectl: &Kubectl, count: usize) -> Vec<String> {
    let mark = |ordinal: usize| {
        wait::until("the mark of a volume", PATIENCE, || {
            let said = kubectl.run(&format!("exec db-{ordinal} -- cat /data/mark"));
            if said.code == 0 && !said.stdout.is_empty() {
                Ok(said.stdout)
            } else {
                Err(said)
            }
        })
    };
    (0..count).map(mark).collect()
}

/// One pod after the other has written to each volume: who has ended does not write again.
pub(super) fn no_two_wrote_at_once(kubectl: &Kubectl, count: usize) {
    for ordinal in 0..count {
        let pod = format!("db-{ordinal}");
        let twice = kubectl.ok_args(&[
            "exec",
            &pod,
            "--",
            "sh",
            "-c",
            "uniq /data/who | sort | uniq -d",
        ]);
        assert_eq!(twice, "", "{pod} has run twice at once");
        let now = kubectl.ok(&format!("get pod {pod} -o jsonpath={{.metadata.uid}}"));
        let wrote = kubectl.ok(&format!("exec {pod} -- tail -n 1 /data/who"));
        assert_eq!(wrote.trim(), now.trim());
    }
}

/// Name, UID, container's ID and restarts of every pod that is selected.
pub(super) fn identities(kubectl: &Kubectl, selector: &str) -> String {
    kubectl.ok_args(&[
        "get",
        "pods",
        "-l",
        selector,
        "--sort-by=.metadata.name",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}",
    ])
}
