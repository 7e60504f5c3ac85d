//! The kubeconfig file's text.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::KeyPair;

/// A kubeconfig of one cluster, one user and one context, all data inline.
pub(super) fn render(url: &str, ca_pem: &str, user: &str, pair: &KeyPair) -> String {
    let ca = BASE64_STANDARD.encode(ca_pem);
    let cert = BASE64_STANDARD.encode(&pair.cert_pem);
    let key = BASE64_STANDARD.encode(&pair.key_pem);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coracle
  cluster:
    server: {url}
    certificate-authority-data: {ca}
contexts:
- name: {user}@coracle
  context:
    cluster: coracle
    user: {user}
current-context: {user}@coracle
users:
- name: {user}
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
"
    )
}
