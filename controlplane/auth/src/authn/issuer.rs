//! What others need to check this cluster's service-account tokens: the issuer's metadata and its
//! public keys.
//!
//! Source: `pkg/serviceaccount/openidmetadata.go` and `pkg/routes/openidmetadata.go` at v1.37.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::service_account::{ISSUER, TokenSigner};

/// The path of the metadata.
pub const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the keys.
pub const JWKS: &str = "/openid/v1/jwks";

/// The document at one of the two paths, and its media type. `advertise` is where the server is
/// reached.
pub fn document(signer: &TokenSigner, advertise: SocketAddr, path: &str) -> (&'static str, Value) {
    if path == JWKS {
        return (
            "application/jwk-set+json",
            json!({"keys": [signer.public_jwk()]}),
        );
    }
    let value = json!({
        "issuer": ISSUER,
        "jwks_uri": format!("https://{advertise}{JWKS}"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    ("application/json", value)
}
