//! The code that reads from JSON those kinds that more than one part of the house follows, made
//! once.
//!
//! It is much: for `Pod` alone, as large as all else of this crate. Each crate that asks for a kind
//! would make its own copy, unless one that it stands on and that is built for size, as it is
//! itself, has made it already: `rustc` shares generic code that way. So a kind that a second crate
//! begins to follow belongs into the list; one that no crate or a single one follows does not.

use k8s_openapi::{
    api::{
        certificates::v1::CertificateSigningRequest,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service, ServiceAccount},
        discovery::v1::EndpointSlice,
    },
    serde::de::DeserializeOwned,
};
use kube::api::{ObjectList, WatchEvent};

type Decoded = serde_json::Result<()>;

/// As an object, in a list, as an event of a watch.
type Decode = fn(&str) -> [Decoded; 3];

/// In each form that a server gives it in.
fn decode<K: DeserializeOwned + Clone>(text: &str) -> [Decoded; 3] {
    [
        serde_json::from_str::<K>(text).map(drop),
        serde_json::from_str::<ObjectList<K>>(text).map(drop),
        serde_json::from_str::<WatchEvent<K>>(text).map(drop),
    ]
}

/// Each kind with what decodes it.
pub static DECODERS: &[(&str, Decode)] = &[
    (
        "CertificateSigningRequest",
        decode::<CertificateSigningRequest>,
    ),
    ("ConfigMap", decode::<ConfigMap>),
    ("EndpointSlice", decode::<EndpointSlice>),
    ("Lease", decode::<Lease>),
    ("Namespace", decode::<Namespace>),
    ("Node", decode::<Node>),
    ("Pod", decode::<Pod>),
    ("Secret", decode::<Secret>),
    ("Service", decode::<Service>),
    ("ServiceAccount", decode::<ServiceAccount>),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_decoded_in_each_form() {
        for (kind, decode) in DECODERS {
            let spec = if *kind == "CertificateSigningRequest" {
                r#", "spec": {"request": "", "signerName": "s"}"#
            } else if *kind == "EndpointSlice" {
                r#", "addressType": "IPv4", "endpoints": []"#
            } else if *kind == "Pod" {
                r#", "spec": {"containers": []}"#
            } else {
                ""
            };
            let object = format!(r#"{{"metadata": {{"name": "a"}}{spec}}}"#);
            let list =
                format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{object}]}}"#);
            let event = format!(r#"{{"type": "ADDED", "object": {object}}}"#);
            for (form, text) in [object, list, event].iter().enumerate() {
                let decoded = &decode(text)[form];
                assert!(decoded.is_ok(), "{kind}: {decoded:?}");
            }
        }
    }
}
