//! A container's environment (pure, once everything it refers to is fetched).
//!
//! Order and precedence are kubelet's `makeEnvironmentVariables`: `envFrom`, then `env` with
//! `$(VAR)` expanded over what came before, then the Services' variables that nothing overrides.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use coracle_netfilter::service::Port;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapKeySelector, Container, EnvVarSource, FileKeySelector, Pod, Secret,
    SecretKeySelector,
};

use super::{env_file::EnvFileError, expansion::expand, fields};
use crate::{pod::PodExt, service_index::ServiceEntry};

/// Everything an environment can refer to.
pub(crate) struct EnvInput<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) fields: &'a fields::FieldInput<'a>,
    /// By name; absent: does not exist.
    pub(crate) config_maps: &'a HashMap<String, Arc<ConfigMap>>,
    pub(crate) secrets: &'a HashMap<String, Arc<Secret>>,
    /// Values out of files; absent: no such file or no such key.
    pub(crate) files: &'a HashMap<FileKey, String>,
    pub(crate) services: &'a [ServiceEntry],
}

/// Volume, path and key of a value in a file.
pub(crate) type FileKey = (String, String, String);

/// Why there is no environment: the waiting reason is `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum EnvError {
    #[error("configmap \"{name}\" not found")]
    NoConfigMap { name: String },
    #[error("secret \"{name}\" not found")]
    NoSecret { name: String },
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    NoConfigMapKey {
        namespace: String,
        name: String,
        key: String,
    },
    #[error("couldn't find key {key} in Secret {namespace}/{name}")]
    NoSecretKey {
        namespace: String,
        name: String,
        key: String,
    },
    #[error("key {key} of Secret {name} is not UTF-8 text")]
    NotText { name: String, key: String },
    #[error("environment variable key {key:?} not found in file {path:?} of volume {volume:?}")]
    NoFileKey {
        volume: String,
        path: String,
        key: String,
    },
    #[error("cannot find the volume {volume:?} referenced by FileKeyRef")]
    NoVolume { volume: String },
    #[error("couldn't parse env file {path:?} of volume {volume:?}")]
    File {
        volume: String,
        path: String,
        source: EnvFileError,
    },
    #[error(transparent)]
    Field(#[from] fields::FieldError),
}

impl EnvError {
    /// Whether something is not there, which does not matter where a reference is optional.
    fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoConfigMap { .. }
                | Self::NoConfigMapKey { .. }
                | Self::NoSecret { .. }
                | Self::NoSecretKey { .. }
                | Self::NoFileKey { .. }
        )
    }
}

/// The values in files that a container's environment refers to.
pub(crate) fn file_references(container: &Container) -> Vec<FileKey> {
    let sources = container
        .env
        .iter()
        .flatten()
        .filter_map(|var| var.value_from.as_ref()?.file_key_ref.as_ref());
    sources
        .map(|file| {
            (
                file.volume_name.clone(),
                file.path.clone(),
                file.key.clone(),
            )
        })
        .collect()
}

/// Names of the ConfigMaps and Secrets that a container's environment refers to.
pub(crate) fn references(container: &Container) -> (Vec<&str>, Vec<&str>) {
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    for from in container.env_from.iter().flatten() {
        config_maps.extend(from.config_map_ref.as_ref().map(|r| r.name.as_str()));
        secrets.extend(from.secret_ref.as_ref().map(|r| r.name.as_str()));
    }
    for source in container
        .env
        .iter()
        .flatten()
        .filter_map(|var| var.value_from.as_ref())
    {
        config_maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.as_str()));
        secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.as_str()));
    }
    for list in [&mut config_maps, &mut secrets] {
        list.sort_unstable();
        list.dedup();
    }
    (config_maps, secrets)
}

/// Makes the environment.
pub(crate) fn make(
    container: &Container,
    input: &EnvInput<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    let mut env = Environment::default();
    add_env_from(container, input, &mut env)?;
    let services = service_variables(input);
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (Some(value), _) if !value.is_empty() => expand(value, |name| {
                env.get(name)
                    .or_else(|| services.get(name).map(String::as_str))
            }),
            (_, Some(source)) => match value_from(container, source, input)? {
                Some(value) => value,
                None => continue,
            },
            (value, None) => value.clone().unwrap_or_default(),
        };
        env.set(var.name.clone(), value);
    }
    for (name, value) in services {
        if env.get(&name).is_none() {
            env.set(name, value);
        }
    }
    Ok(env.list)
}

#[derive(Default)]
struct Environment {
    list: Vec<(String, String)>,
    index: HashMap<String, usize>,
}

impl Environment {
    fn get(&self, name: &str) -> Option<&str> {
        self.index.get(name).map(|&at| self.list[at].1.as_str())
    }

    fn set(&mut self, name: String, value: String) {
        match self.index.get(&name) {
            Some(&at) => self.list[at].1 = value,
            None => {
                self.index.insert(name.clone(), self.list.len());
                self.list.push((name, value));
            }
        }
    }
}

fn add_env_from(
    container: &Container,
    input: &EnvInput<'_>,
    env: &mut Environment,
) -> Result<(), EnvError> {
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match input.config_maps.get(&reference.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        env.set(format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => {
                    return Err(EnvError::NoConfigMap {
                        name: reference.name.clone(),
                    });
                }
            }
        }
        if let Some(reference) = &from.secret_ref {
            match input.secrets.get(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        env.set(
                            format!("{prefix}{key}"),
                            text(&reference.name, key, &value.0)?,
                        );
                    }
                }
                None if reference.optional == Some(true) => {}
                None => {
                    return Err(EnvError::NoSecret {
                        name: reference.name.clone(),
                    });
                }
            }
        }
    }
    Ok(())
}

/// `None` when an optional reference leads nowhere.
fn value_from(
    container: &Container,
    source: &EnvVarSource,
    input: &EnvInput<'_>,
) -> Result<Option<String>, EnvError> {
    if let Some(field) = &source.field_ref {
        return Ok(Some(fields::pod_field(&field.field_path, input.fields)?));
    }
    if let Some(resource) = &source.resource_field_ref {
        let of = resource
            .container_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or(&container.name);
        return Ok(Some(fields::resource_field(
            of,
            &resource.resource,
            resource.divisor.as_ref(),
            input.fields,
        )?));
    }
    let (optional, found) = if let Some(reference) = &source.config_map_key_ref {
        (reference.optional, config_map_value(reference, input))
    } else if let Some(reference) = &source.secret_key_ref {
        (reference.optional, secret_value(reference, input))
    } else if let Some(reference) = &source.file_key_ref {
        (reference.optional, file_value(reference, input))
    } else {
        // As upstream: a source of no known kind leaves the variable empty.
        return Ok(Some(String::new()));
    };
    match found {
        Err(error) if optional == Some(true) && error.is_absence() => Ok(None),
        found => found.map(Some),
    }
}

fn config_map_value(
    reference: &ConfigMapKeySelector,
    input: &EnvInput<'_>,
) -> Result<String, EnvError> {
    let (name, key) = (&reference.name, &reference.key);
    let Some(map) = input.config_maps.get(name) else {
        return Err(EnvError::NoConfigMap { name: name.clone() });
    };
    let value = map.data.as_ref().and_then(|data| data.get(key));
    value.cloned().ok_or_else(|| EnvError::NoConfigMapKey {
        namespace: input.pod.namespace().to_owned(),
        name: name.clone(),
        key: key.clone(),
    })
}

fn secret_value(reference: &SecretKeySelector, input: &EnvInput<'_>) -> Result<String, EnvError> {
    let (name, key) = (&reference.name, &reference.key);
    let Some(secret) = input.secrets.get(name) else {
        return Err(EnvError::NoSecret { name: name.clone() });
    };
    match secret.data.as_ref().and_then(|data| data.get(key)) {
        Some(value) => text(name, key, &value.0),
        None => Err(EnvError::NoSecretKey {
            namespace: input.pod.namespace().to_owned(),
            name: name.clone(),
            key: key.clone(),
        }),
    }
}

fn file_value(reference: &FileKeySelector, input: &EnvInput<'_>) -> Result<String, EnvError> {
    let key = (
        reference.volume_name.clone(),
        reference.path.clone(),
        reference.key.clone(),
    );
    match input.files.get(&key) {
        Some(value) => Ok(value.clone()),
        None => Err(EnvError::NoFileKey {
            volume: key.0,
            path: key.1,
            key: key.2,
        }),
    }
}

fn text(name: &str, key: &str, bytes: &[u8]) -> Result<String, EnvError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| EnvError::NotText {
        name: name.to_owned(),
        key: key.to_owned(),
    })
}

/// `NAME_SERVICE_HOST` and its relatives, sorted by name.
fn service_variables(input: &EnvInput<'_>) -> BTreeMap<String, String> {
    let links = input
        .pod
        .spec_or_default()
        .enable_service_links
        .unwrap_or(true);
    let mut variables = BTreeMap::new();
    for service in input.services {
        let is_api = service.namespace == "default" && service.name == "kubernetes";
        let linked = links && service.namespace == input.pod.namespace();
        if !is_api && !linked {
            continue;
        }
        add_service(service, &mut variables);
    }
    variables
}

fn add_service(service: &ServiceEntry, variables: &mut BTreeMap<String, String>) {
    let Some(first) = service.ports.first() else {
        return;
    };
    let name = variable_name(&service.name);
    let host = &service.cluster_ip;
    let bracketed = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    variables.insert(format!("{name}_SERVICE_HOST"), host.clone());
    variables.insert(format!("{name}_SERVICE_PORT"), first.port.to_string());
    for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
        variables.insert(
            format!("{name}_SERVICE_PORT_{}", variable_name(&port.name)),
            port.port.to_string(),
        );
    }
    let url = |port: &Port| format!("{}://{bracketed}:{}", port.protocol.as_str(), port.port);
    variables.insert(format!("{name}_PORT"), url(first));
    for port in &service.ports {
        let prefix = format!(
            "{name}_PORT_{}_{}",
            port.port,
            port.protocol.as_str().to_uppercase()
        );
        variables.insert(prefix.clone(), url(port));
        variables.insert(format!("{prefix}_PROTO"), port.protocol.as_str().to_owned());
        variables.insert(format!("{prefix}_PORT"), port.port.to_string());
        variables.insert(format!("{prefix}_ADDR"), host.clone());
    }
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests;
