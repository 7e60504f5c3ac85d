//! The code that reads from JSON those kinds that more than one part of the house follows, and the
//! code that writes those that more than one part makes, compiled once.
//!
//! It is much: for `Pod` alone, as large as all else of this crate. Each crate that asks for a kind
//! would make its own copy, unless one that it stands on and that is built for size, as it is
//! itself, has made it already: `rustc` shares generic code that way. So a kind that a second crate
//! begins to follow or to make belongs into the list; one that no crate or a single one follows
//! does not.

use k8s_openapi::{
    api::{
        certificates::v1::CertificateSigningRequest,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service, ServiceAccount},
        discovery::v1::EndpointSlice,
    },
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::Value;

type Decoded = serde_json::Result<()>;

type Decode = fn(&str) -> Decoded;

fn decode<K: DeserializeOwned>(text: &str) -> Decoded {
    serde_json::from_str::<K>(text).map(drop)
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

type Encode = fn() -> serde_json::Result<(Vec<u8>, Value)>;

fn encode<K: Serialize + Default>() -> serde_json::Result<(Vec<u8>, Value)> {
    let object = K::default();
    Ok((serde_json::to_vec(&object)?, serde_json::to_value(&object)?))
}

/// Each kind with what encodes it.
pub static ENCODERS: &[(&str, Encode)] = &[("Node", encode::<Node>), ("Pod", encode::<Pod>)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_decoded() {
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
            let decoded = decode(&format!(r#"{{"metadata": {{"name": "a"}}{spec}}}"#));
            assert!(decoded.is_ok(), "{kind}: {decoded:?}");
        }
    }

    #[test]
    fn both_encodings_are_one() {
        for (kind, encode) in ENCODERS {
            let (text, value) = encode().unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
            assert_eq!(value["kind"], *kind);
        }
    }
}
