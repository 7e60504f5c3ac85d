//! What others need to check this cluster's service-account tokens: the issuer's metadata and its public keys.
//!
//! Source: `pkg/serviceaccount/openidmetadata.go` and `pkg/routes/openidmetadata.go` at v1.37.

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::service_account::ISSUER;
use crate::{
    reply::{JSON, Reply},
    server::ApiServer,
};

/// The path of the metadata.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the keys.
pub(crate) const JWKS: &str = "/openid/v1/jwks";
/// Keys and metadata change with the cluster's key only.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The document at one of the two paths.
pub(crate) fn document(server: &ApiServer, path: &str) -> Reply {
    let (kind, value) = if path == JWKS {
        ("application/jwk-set+json", json!({"keys": [server.signer.public_jwk()]}))
    } else {
        let keys = format!("https://{}{JWKS}", server.config.advertise);
        let value = json!({
            "issuer": ISSUER,
            "jwks_uri": keys,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        });
        (JSON, value)
    };
    let mut reply = Reply::new(StatusCode::OK, kind, value.to_string());
    reply.headers.push((header::CACHE_CONTROL, CACHE_CONTROL));
    reply
}
