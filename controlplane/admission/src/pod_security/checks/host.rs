//! What a pod shares with its node.
//!
//! Source: `check_hostNamespaces.go`, `check_hostPorts.go`, `check_hostProbesAndhostLifecycle.go`
//! and `check_windowsHostProcess.go` in `k8s.io/pod-security-admission/policy` at v1.37.

use std::collections::BTreeSet;

use coracle_registry::value::{items, number, string};
use serde_json::Value;

use crate::pod_security::{
    pod::Pod,
    violation::Violation,
    words::{Told, bad_containers, containers, plural, quoted, setters},
};

/// Its network, processes and shared memory.
pub(crate) fn namespaces(pod: Pod<'_>) -> Option<Violation> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let shared: Vec<String> = fields
        .filter(|field| pod.spec[*field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| Violation {
        reason: "host namespaces",
        detail: shared.join(", "),
    })
}

/// Its ports.
pub(crate) fn ports(pod: Pod<'_>) -> Option<Violation> {
    // As texts, which is how they are ordered.
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let bad = bad_containers(pod, |container| {
        let ports = items(&container["ports"]).iter();
        let taking = ports.map(|port| number(&port["hostPort"]));
        let own: Vec<String> = taking
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let is_bad = !own.is_empty();
        taken.extend(own);
        is_bad
    });
    (!bad.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!(
            "{} {} {} {}",
            containers(&bad),
            plural(bad.len(), "uses", "use"),
            plural(taken.len(), "hostPort", "hostPorts"),
            taken.iter().cloned().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// Its agent as a messenger: probes and handlers go to the pod and nowhere else.
pub(crate) fn handlers(pod: Pod<'_>) -> Option<Violation> {
    let mut hosts = Told::new();
    let bad: Told<'_> = bad_containers(pod, |container| {
        let own: Vec<&str> = hosts_of(container).collect();
        hosts.extend(&own);
        !own.is_empty()
    })
    .into_iter()
    .collect();
    (!bad.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} {} {}",
            containers(&bad.iter().collect::<Vec<_>>()),
            plural(bad.len(), "uses", "use"),
            plural(
                hosts.len(),
                "probe or lifecycle host",
                "probe or lifecycle hosts"
            ),
            quoted(hosts)
        ),
    })
}

fn hosts_of(container: &Value) -> impl Iterator<Item = &str> {
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"].into_iter();
    let probes = probes.map(|probe| &container[probe]);
    let events = ["postStart", "preStop"].into_iter();
    let all = probes.chain(events.map(|event| &container["lifecycle"][event]));
    all.flat_map(|handler| [&handler["httpGet"]["host"], &handler["tcpSocket"]["host"]])
        .map(string)
        .filter(|host| !host.is_empty())
}

/// Everything, on Windows.
pub(crate) fn processes(pod: Pod<'_>) -> Option<Violation> {
    let is_host = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let bad = bad_containers(pod, |container| is_host(&container["securityContext"]));
    let setters = setters(is_host(pod.security_context()), &bad)?;
    Some(Violation {
        reason: "hostProcess",
        detail: format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    })
}
