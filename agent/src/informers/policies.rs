//! What is kept of what NetworkPolicies look at. Pure.

use std::borrow::Cow;

use coracle_client::part::ReadPart;
use coracle_netfilter::policy::PolicyKey;
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

/// A policy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PolicyPart {
    /// What is enforced; nothing of one without a name.
    pub(crate) policy: Option<Policy>,
    /// Why it cannot be read, if it cannot.
    pub(crate) flaw: Option<String>,
}

impl From<NetworkPolicy> for PolicyPart {
    fn from(object: NetworkPolicy) -> Self {
        let error = match Policy::from_object(&object) {
            Ok(policy) => {
                return Self {
                    policy: Some(policy),
                    flaw: None,
                };
            }
            Err(error) => error,
        };
        let key = object.metadata.namespace.as_ref();
        let key = key
            .zip(object.metadata.name.as_ref())
            .map(|(namespace, name)| PolicyKey {
                namespace: namespace.clone(),
                name: name.clone(),
            });
        Self {
            policy: key.map(|key| Policy::shut(key, &object)),
            flaw: Some(ErrorChain(&error).to_string()),
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
    fn what_cannot_be_read_lets_nothing_through() {
        let part = |spec| {
            let object = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": spec});
            PolicyPart::from(serde_json::from_value::<NetworkPolicy>(object).unwrap())
        };
        let of_a = json!({"matchLabels": {"app": "a"}});
        let block = |cidr| json!([{"from": [{"ipBlock": {"cidr": cidr}}]}]);
        let right = part(json!({"podSelector": of_a, "ingress": block("10.0.0.0/8")}));
        assert!(right.policy.is_some() && right.flaw.is_none());
        let wrong = part(json!({"podSelector": of_a, "ingress": block("10.0.0.0/99")}));
        let shut = part(json!({"podSelector": of_a, "policyTypes": ["Ingress"]}));
        assert!(wrong.flaw.unwrap().contains("10.0.0.0/99"));
        assert_eq!(wrong.policy, shut.policy, "the same pods get nothing");
        // Whom it selects cannot be told either: everybody.
        let operator = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        let wrong = part(json!({"podSelector": operator, "egress": [{}]}));
        let all = part(json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
        assert!(wrong.flaw.is_some());
        assert_eq!(wrong.policy, all.policy);
        let nameless = PolicyPart::from(NetworkPolicy::default());
        assert!(nameless.policy.is_none() && nameless.flaw.is_some());
    }

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
