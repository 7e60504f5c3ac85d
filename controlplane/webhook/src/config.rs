//! Where a webhook is, whom to believe there, and who the caller is to it.
//!
//! The same for webhooks of admission and of conversion: `WebhookClientConfig`. Who the caller is
//! no object of the API says; files of a server may.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// The port of a Service reference that names none.
const DEFAULT_PORT: u16 = 443;

/// How to reach a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// Where it is.
    pub target: Target,
    /// Certificates in PEM; if there is none, the machine's are believed.
    pub ca_bundle: Vec<u8>,
    /// Nobody's by default.
    pub credentials: Credentials,
}

/// What a caller shows of itself.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The header of this name, such as `Bearer TOKEN`; empty for none.
    pub authorization: String,
    /// Certificates in PEM, and their key; empty for none.
    pub certificate: Vec<u8>,
    /// In PEM.
    pub key: Vec<u8>,
}

impl fmt::Debug for Credentials {
    /// Nothing of them is told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("has_authorization", &!self.authorization.is_empty())
            .field("has_certificate", &!self.certificate.is_empty())
            .finish()
    }
}

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// `https://host[:port]/path`, which this machine reaches by itself.
    Url(String),
    /// A Service of the cluster.
    Service(ServiceReference),
}

/// A port of a Service, and a path there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    /// The Service's.
    pub namespace: String,
    /// The Service's.
    pub name: String,
    /// The Service's, not that of a pod.
    pub port: u16,
    /// Perhaps empty.
    pub path: String,
}

/// What is wrong with a configuration that was stored.
#[derive(Debug, thiserror::Error)]
pub enum ReadConfigError {
    /// Neither `url` nor `service`.
    #[error("webhook configuration must have either service or URL")]
    NoTarget,
    /// A port that is none.
    #[error("service port {port} is not a port")]
    Port {
        /// As it was written.
        port: Value,
    },
    /// `caBundle` is bytes, and JSON has these in base64.
    #[error("caBundle is not base64")]
    CaBundle(#[source] base64::DecodeError),
}

impl ClientConfig {
    /// Reads a `clientConfig` as the API stores it.
    ///
    /// # Errors
    /// [`ReadConfigError`]: what no validation would let through.
    pub fn read(config: &Value) -> Result<Self, ReadConfigError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = &config["service"];
        let target = if service.is_object() {
            let port = match &service["port"] {
                Value::Null => DEFAULT_PORT,
                port => number(port).ok_or_else(|| ReadConfigError::Port { port: port.clone() })?,
            };
            Target::Service(ServiceReference {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port,
                path: text(&service["path"]),
            })
        } else {
            let url = config["url"].as_str().filter(|url| !url.is_empty());
            Target::Url(url.ok_or(ReadConfigError::NoTarget)?.to_owned())
        };
        let bundle = STANDARD.decode(text(&config["caBundle"]));
        Ok(Self {
            target,
            ca_bundle: bundle.map_err(ReadConfigError::CaBundle)?,
            credentials: Credentials::default(),
        })
    }
}

fn number(port: &Value) -> Option<u16> {
    let port = port.as_u64().and_then(|port| u16::try_from(port).ok())?;
    (port > 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_is_stored() {
        let service = |port, path: &str| {
            Some(Target::Service(ServiceReference {
                namespace: "n".to_owned(),
                name: "s".to_owned(),
                port,
                path: path.to_owned(),
            }))
        };
        for (config, expect) in [
            (
                json!({"url": "https://a/b"}),
                Some(Target::Url("https://a/b".to_owned())),
            ),
            (
                json!({"service": {"namespace": "n", "name": "s"}}),
                service(443, ""),
            ),
            (
                json!({"service": {"namespace": "n", "name": "s", "port": 8443, "path": "/p"}}),
                service(8443, "/p"),
            ),
            (
                json!({"service": {"namespace": "n", "name": "s", "port": 0}}),
                None,
            ),
            (json!({}), None),
            (json!({"url": ""}), None),
            (json!({"url": "https://a", "caBundle": "?"}), None),
        ] {
            let read = ClientConfig::read(&config).ok().map(|read| read.target);
            assert_eq!(read, expect, "{config}");
        }
        let read = ClientConfig::read(&json!({"url": "https://a", "caBundle": "YQ=="}));
        assert_eq!(read.unwrap().ca_bundle, b"a");
    }
}
