//! Extenders: processes beside the scheduler that have a say in where pods go, as the file has
//! them.
//!
//! What upstream finds out at the first call, such as an address that is none, is refused here.
//!
//! Source: `Extender` in `k8s.io/kube-scheduler/config/v1/types.go`, `validateExtenders` in
//! `pkg/scheduler/apis/config/validation/validation.go` at v1.37.

mod tls;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_api::{name::qualified_name_errors, scheduling::is_extended};
use http::Uri;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde::Deserialize;

use super::ConfigError;

/// How long an extender that says nothing about it has for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How certificates and keys are read.
pub(super) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// One extender. What it does not do has no verb.
#[derive(Debug, Clone)]
pub(crate) struct ExtenderConfig {
    /// As it is written, which names the extender.
    pub(crate) url_prefix: String,
    pub(crate) filter: Option<Verb>,
    pub(crate) prioritize: Option<Verb>,
    pub(crate) preempt: Option<Verb>,
    pub(crate) bind: Option<Verb>,
    /// Its scores count that often.
    pub(crate) weight: i64,
    /// By when it has answered.
    pub(crate) timeout: Duration,
    /// Whether the names of nodes are enough for it.
    pub(crate) node_cache_capable: bool,
    /// The pods that ask for any of these are its; all, if there are none.
    pub(crate) managed_resources: BTreeSet<String>,
    /// What of that NodeResourcesFit leaves to it.
    pub(crate) ignored_by_scheduler: Vec<String>,
    /// Whether pods are placed without it when it fails.
    pub(crate) ignorable: bool,
    pub(crate) tls: Arc<ClientConfig>,
    /// By which name its certificate is checked; `None`: by that of the address.
    pub(crate) server_name: Option<ServerName<'static>>,
}

/// What an extender is asked for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verb {
    pub(crate) name: String,
    pub(crate) url: Uri,
}

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Written {
    url_prefix: String,
    filter_verb: String,
    preempt_verb: String,
    prioritize_verb: String,
    weight: i64,
    bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    enable_https: bool,
    tls_config: Option<WrittenTls>,
    http_timeout: Option<String>,
    node_cache_capable: bool,
    managed_resources: Vec<ManagedResource>,
    ignorable: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WrittenTls {
    insecure: bool,
    server_name: String,
    cert_file: PathBuf,
    key_file: PathBuf,
    ca_file: PathBuf,
    /// In base64, as the other two.
    cert_data: String,
    key_data: String,
    ca_data: String,
}

/// Without the key.
impl std::fmt::Debug for WrittenTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrittenTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ManagedResource {
    name: String,
    ignored_by_scheduler: bool,
}

impl ExtenderConfig {
    /// Whether it asks for whole nodes.
    pub(crate) fn is_told_of_nodes(&self) -> bool {
        !self.node_cache_capable && (self.filter.is_some() || self.prioritize.is_some())
    }
}

/// Reads all extenders.
pub(super) fn all(
    written: &[Written],
    read: ReadFile<'_>,
) -> Result<Vec<ExtenderConfig>, ConfigError> {
    let mut managed = BTreeSet::new();
    for (index, one) in written.iter().enumerate() {
        check(one, &format!("extenders[{index}]"), &mut managed)?;
    }
    let binders = written.iter().filter(|one| !one.bind_verb.is_empty());
    let binders = binders.count();
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        let why = format!("Invalid value: {found:?}: only one extender can implement bind");
        return Err(ConfigError::at("extenders", why));
    }
    let all = written.iter().enumerate();
    all.map(|(index, one)| one.read(&format!("extenders[{index}]"), read))
        .collect()
}

/// Upstream's rules. `managed` is what the ones before manage.
fn check<'a>(
    written: &'a Written,
    place: &str,
    managed: &mut BTreeSet<&'a str>,
) -> Result<(), ConfigError> {
    if !written.prioritize_verb.is_empty() && written.weight <= 0 {
        let why = "must have a positive weight applied to it";
        let why = format!("Invalid value: {}: {why}", written.weight);
        return Err(ConfigError::at(format!("{place}.weight"), why));
    }
    for (index, ManagedResource { name, .. }) in written.managed_resources.iter().enumerate() {
        let invalid = |why: &str| {
            let field = format!("{place}.managedResources[{index}].name");
            ConfigError::at(field, format!("Invalid value: {name:?}: {why}"))
        };
        if let Some(why) = qualified_name_errors(name).first() {
            return Err(invalid(why));
        }
        if !is_extended(name) {
            return Err(invalid("is an invalid extended resource name"));
        }
        if !managed.insert(name) {
            return Err(invalid("duplicate extender managed resource name"));
        }
    }
    Ok(())
}

impl Written {
    fn read(&self, place: &str, read: ReadFile<'_>) -> Result<ExtenderConfig, ConfigError> {
        let verb = |field: &str, name: &str| match name.is_empty() {
            true => Ok(None),
            false => self.verb(name, format!("{place}.{field}")).map(Some),
        };
        let timeout = format!("{place}.httpTimeout");
        let names = self.managed_resources.iter();
        let ignored = names.clone().filter(|one| one.ignored_by_scheduler);
        let is_https = self.address(place)?.scheme_str() == Some("https");
        let (tls, server_name) = self.tls(place, is_https, read)?;
        Ok(ExtenderConfig {
            url_prefix: self.url_prefix.clone(),
            filter: verb("filterVerb", &self.filter_verb)?,
            prioritize: verb("prioritizeVerb", &self.prioritize_verb)?,
            preempt: verb("preemptVerb", &self.preempt_verb)?,
            bind: verb("bindVerb", &self.bind_verb)?,
            weight: self.weight,
            timeout: super::time(timeout, self.http_timeout.as_ref(), TIMEOUT)?,
            node_cache_capable: self.node_cache_capable,
            managed_resources: names.map(|one| one.name.clone()).collect(),
            ignored_by_scheduler: ignored.map(|one| one.name.clone()).collect(),
            ignorable: self.ignorable,
            tls,
            server_name,
        })
    }

    fn address(&self, place: &str) -> Result<Uri, ConfigError> {
        let invalid = |why: &str| {
            let why = format!("Invalid value: {:?}: {why}", self.url_prefix);
            ConfigError::at(format!("{place}.urlPrefix"), why)
        };
        let address: Uri = self
            .url_prefix
            .parse()
            .map_err(|error: http::uri::InvalidUri| invalid(&error.to_string()))?;
        let Some(authority) = address.authority() else {
            return Err(invalid("must begin with http:// or https:// and a host"));
        };
        if !matches!(address.scheme_str(), Some("http" | "https")) {
            return Err(invalid("must begin with http:// or https:// and a host"));
        }
        if authority.as_str().contains('@') {
            // It is not repeated: it may be read by others.
            let why = "must not have a user or a password in it";
            return Err(ConfigError::at(format!("{place}.urlPrefix"), why));
        }
        Ok(address)
    }

    fn verb(&self, name: &str, place: String) -> Result<Verb, ConfigError> {
        let url = format!("{}/{name}", self.url_prefix.trim_end_matches('/'));
        let url = url.parse().map_err(|error| {
            let why = format!("Invalid value: {name:?}: {url:?} is no address: {error}");
            ConfigError::at(place, why)
        })?;
        let name = name.to_owned();
        Ok(Verb { name, url })
    }

    fn tls(
        &self,
        place: &str,
        is_https: bool,
        read: ReadFile<'_>,
    ) -> Result<(Arc<ClientConfig>, Option<ServerName<'static>>), ConfigError> {
        let unsaid = WrittenTls::default();
        let written = self.tls_config.as_ref().unwrap_or(&unsaid);
        let place = format!("{place}.tlsConfig");
        let read = |field: &str, data: &str, path: &Path| {
            tls::data_or_file((&place, field), data, path, read)
        };
        let material = tls::Material {
            insecure: written.insecure,
            authority: read("ca", &written.ca_data, &written.ca_file)?,
            certificate: read("cert", &written.cert_data, &written.cert_file)?,
            key: read("key", &written.key_data, &written.key_file)?,
            // Whom to believe nobody has said: as upstream, everybody.
            believes_all: self.enable_https,
            is_needed: is_https,
        };
        let config = material.config(&place)?;
        let name = Some(written.server_name.as_str()).filter(|name| !name.is_empty());
        let name = name.map(|name| ServerName::try_from(name.to_owned()));
        let name = name.transpose().map_err(|error| {
            let why = format!("Invalid value: {:?}: {error}", written.server_name);
            ConfigError::at(format!("{place}.serverName"), why)
        })?;
        Ok((Arc::new(config), name))
    }
}
