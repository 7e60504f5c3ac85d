//! Who acts on the objects of each kind that is written: a part of the cluster, or nobody yet.
//!
//! A test holds it against the list of kinds and against the sources it names.

use ActedOn::{Addon, By, Nobody, Record};

/// Who acts on the objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActedOn {
    /// This file, and often others: a path in the repository.
    By(&'static str),
    /// Nobody has to, here as upstream: it is what somebody else wrote down, and the reason why.
    Record(&'static str),
    /// Nobody, here as upstream, unless something is installed into the cluster; what follows.
    Addon(&'static str),
    /// Nobody, where upstream has somebody; what follows.
    Nobody(&'static str),
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const DEVICES: &str = "resource.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const NETWORK: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";

const BINDINGS: ActedOn = By("controlplane/auth/src/authz/rbac/index.rs");
const EVENTS: ActedOn = By("controlplane/apiserver/src/event_expiry.rs");
const NO_CSI: ActedOn = Nobody("nodes have no CSI drivers");
const NO_DEVICES: ActedOn = Nobody("no device is given to a pod, and pods that claim one wait");
const NO_QUEUES: ActedOn = Nobody("requests are not queued by it");
const REFUSALS: ActedOn = By("controlplane/admission/src/policy/validating.rs");
const CHANGES: ActedOn = By("controlplane/admission/src/policy/mutating.rs");
const VOLUMES: ActedOn = By("controlplane/controllers/src/volume/binder.rs");
const WEBHOOKS: ActedOn = By("controlplane/admission/src/webhooks/index.rs");

/// Group, plural, and who acts on it.
pub const KINDS: &[(&str, &str, ActedOn)] = &[
    ("", "configmaps", By("agent/src/volume/config_map.rs")),
    (
        "",
        "endpoints",
        By("controlplane/controllers/src/endpointslice_mirroring.rs"),
    ),
    ("", "events", EVENTS),
    (
        "",
        "limitranges",
        By("controlplane/admission/src/limit_ranger.rs"),
    ),
    (
        "",
        "namespaces",
        By("controlplane/controllers/src/namespace.rs"),
    ),
    (
        "",
        "nodes",
        By("controlplane/controllers/src/node_lifecycle.rs"),
    ),
    ("", "persistentvolumeclaims", VOLUMES),
    ("", "persistentvolumes", VOLUMES),
    ("", "pods", By("agent/src/sync_loop.rs")),
    (
        "",
        "podtemplates",
        Record("a template that other programs take; upstream has no controller for it"),
    ),
    (
        "",
        "replicationcontrollers",
        By("controlplane/controllers/src/replicaset.rs"),
    ),
    (
        "",
        "resourcequotas",
        By("controlplane/admission/src/resource_quota.rs"),
    ),
    ("", "secrets", By("agent/src/volume/secret.rs")),
    (
        "",
        "serviceaccounts",
        By("controlplane/admission/src/service_account.rs"),
    ),
    ("", "services", By("agent/src/proxy.rs")),
    (ADMISSION, "mutatingadmissionpolicies", CHANGES),
    (ADMISSION, "mutatingadmissionpolicybindings", CHANGES),
    (ADMISSION, "mutatingwebhookconfigurations", WEBHOOKS),
    (ADMISSION, "validatingadmissionpolicies", REFUSALS),
    (ADMISSION, "validatingadmissionpolicybindings", REFUSALS),
    (ADMISSION, "validatingwebhookconfigurations", WEBHOOKS),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        By("controlplane/apiserver/src/definitions.rs"),
    ),
    (
        "apps",
        "controllerrevisions",
        Record("history that a workload's controller keeps for itself"),
    ),
    (
        "apps",
        "daemonsets",
        By("controlplane/controllers/src/daemonset.rs"),
    ),
    (
        "apps",
        "deployments",
        By("controlplane/controllers/src/deployment.rs"),
    ),
    (
        "apps",
        "replicasets",
        By("controlplane/controllers/src/replicaset.rs"),
    ),
    (
        "apps",
        "statefulsets",
        By("controlplane/controllers/src/statefulset.rs"),
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        By("controlplane/controllers/src/pod_autoscaler.rs"),
    ),
    (
        "batch",
        "cronjobs",
        By("controlplane/controllers/src/cronjob.rs"),
    ),
    ("batch", "jobs", By("controlplane/controllers/src/job.rs")),
    (
        CERTIFICATES,
        "certificatesigningrequests",
        By("controlplane/controllers/src/certificate_signing.rs"),
    ),
    (
        CERTIFICATES,
        "clustertrustbundles",
        Nobody("no volume shows it to a pod"),
    ),
    (
        CERTIFICATES,
        "podcertificaterequests",
        Nobody("nobody signs it, and no volume shows a certificate to a pod"),
    ),
    (
        "coordination.k8s.io",
        "leases",
        By("controlplane/controllers/src/node_lifecycle.rs"),
    ),
    (
        "discovery.k8s.io",
        "endpointslices",
        By("agent/src/informers/parts.rs"),
    ),
    ("events.k8s.io", "events", EVENTS),
    (FLOW, "flowschemas", NO_QUEUES),
    (FLOW, "prioritylevelconfigurations", NO_QUEUES),
    (
        NETWORK,
        "ingressclasses",
        Record("it names an addon; the Ingress is what is relied on"),
    ),
    (
        NETWORK,
        "ingresses",
        Addon("no traffic comes in through it"),
    ),
    (
        NETWORK,
        "ipaddresses",
        By("controlplane/registry/src/service_allocator.rs"),
    ),
    (NETWORK, "networkpolicies", By("agent/src/policy.rs")),
    (
        NETWORK,
        "servicecidrs",
        By("controlplane/registry/src/service_allocator/ranges.rs"),
    ),
    (
        "node.k8s.io",
        "runtimeclasses",
        By("agent/src/container_config/runtime_class.rs"),
    ),
    (
        "policy",
        "poddisruptionbudgets",
        By("controlplane/controllers/src/disruption.rs"),
    ),
    (RBAC, "clusterrolebindings", BINDINGS),
    (RBAC, "clusterroles", BINDINGS),
    (RBAC, "rolebindings", BINDINGS),
    (RBAC, "roles", BINDINGS),
    (DEVICES, "deviceclasses", NO_DEVICES),
    (DEVICES, "devicetaintrules", NO_DEVICES),
    (DEVICES, "resourceclaims", NO_DEVICES),
    (DEVICES, "resourceclaimtemplates", NO_DEVICES),
    (DEVICES, "resourceslices", NO_DEVICES),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        By("controlplane/admission/src/priority.rs"),
    ),
    (STORAGE, "csidrivers", NO_CSI),
    (STORAGE, "csinodes", NO_CSI),
    (STORAGE, "csistoragecapacities", NO_CSI),
    (STORAGE, "storageclasses", VOLUMES),
    (STORAGE, "volumeattachments", NO_CSI),
    (
        STORAGE,
        "volumeattributesclasses",
        Nobody("no volume is given what it says"),
    ),
];

/// Who acts on a kind; `None` for kinds that come at run time.
#[must_use]
pub fn who(group: &str, plural: &str) -> Option<ActedOn> {
    KINDS
        .iter()
        .find(|(of, name, _)| *name == plural && *of == group)
        .map(|(_, _, who)| *who)
}
