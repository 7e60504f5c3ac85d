//! What is kept of what NetworkPolicies look at. Pure.

use std::borrow::Cow;

use coracle_client::part::ReadPart;
use coracle_policy::{
    objects::{Labels, PodView},
    policy::Policy,
};
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod, PodSpec, PodStatus},
    networking::v1::NetworkPolicy,
};
use kube::{Resource, api::ObjectMeta, core::NamespaceResourceScope};
use serde::{Deserialize, Deserializer};

/// A policy, or why it cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PolicyPart {
    pub(crate) policy: Result<Policy, String>,
}

impl From<NetworkPolicy> for PolicyPart {
    fn from(policy: NetworkPolicy) -> Self {
        let policy = Policy::from_object(&policy);
        Self {
            policy: policy.map_err(|error| ErrorChain(&error).to_string()),
        }
    }
}

/// The labels of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamespacePart {
    pub(crate) labels: Labels,
}

impl From<Namespace> for NamespacePart {
    fn from(namespace: Namespace) -> Self {
        Self {
            labels: Labels::new(namespace.metadata.labels.into_iter().flatten()),
        }
    }
}

/// A pod as every node may see it: cut down by the API server to what policies look at.
#[derive(Debug, Clone)]
pub(crate) struct PodPeer {
    metadata: ObjectMeta,
}

impl Resource for PodPeer {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PodPeer".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "net.coracle.dev".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "podpeers".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What of a pod policies can speak of; nothing, if they do not speak of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeerPart {
    pub(crate) view: Option<PodView>,
}

impl ReadPart<PodPeer> for PeerPart {
    fn read<'de, D: Deserializer<'de>>(object: D) -> Result<(ObjectMeta, Self), D::Error> {
        #[derive(Deserialize)]
        struct Object {
            metadata: ObjectMeta,
            spec: Option<PodSpec>,
            status: Option<PodStatus>,
        }
        let object = Object::deserialize(object)?;
        let pod = Pod {
            metadata: object.metadata,
            spec: object.spec,
            status: object.status,
        };
        let view = PodView::from_pod(&pod);
        let metadata = ObjectMeta {
            name: pod.metadata.name,
            namespace: pod.metadata.namespace,
            uid: pod.metadata.uid,
            resource_version: pod.metadata.resource_version,
            ..ObjectMeta::default()
        };
        Ok((metadata, Self { view }))
    }
}

#[cfg(test)]
mod tests {
    use coracle_client::part::Part;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_peer_is_read_as_the_server_cuts_it_down() {
        let peer = json!({"kind": "PodPeer", "apiVersion": "net.coracle.dev/v1",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"app": "a"}},
            "spec": {"nodeName": "n", "containers": [
                {"name": "c", "ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}]}});
        let part: Part<PodPeer, PeerPart> = serde_json::from_value(peer).unwrap();
        let view = part.part.view.unwrap();
        assert_eq!((&*view.node, view.labels.get("app")), ("n", Some("a")));
        assert_eq!((&*view.ports[0].name, view.ports[0].port), ("web", 80));
        assert_eq!(part.metadata.labels, None);
        // Without containers that have named ports there may be none.
        let bare = json!({"metadata": {"name": "a", "namespace": "ns"},
            "spec": {"nodeName": "n"}, "status": {"podIP": "10.1.0.5"}});
        let part: Part<PodPeer, PeerPart> = serde_json::from_value(bare).unwrap();
        assert!(part.part.view.is_some());
    }
}
