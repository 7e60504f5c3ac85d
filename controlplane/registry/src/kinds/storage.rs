//! The kinds of group `storage.k8s.io`.

pub mod csidriver;
pub mod csinode;
pub mod csistoragecapacity;
pub mod storageclass;
pub mod volumeattachment;
pub mod volumeattributesclass;

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{check, strategy::ResourceInfo, value::string};

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("storage.k8s.io", "v1");
const MAX_DRIVER_NAME: usize = 63;

/// The name of a volume driver, which must be there.
fn driver_name(errors: &mut FieldErrors, path: &str, value: &Value) {
    if !check::required(errors, path, value) {
        return;
    }
    if string(value).len() > MAX_DRIVER_NAME {
        errors.too_long(path, value, MAX_DRIVER_NAME);
    }
    check::invalid_all(
        errors,
        path,
        value,
        name::dns_subdomain_errors(&string(value).to_lowercase()),
    );
}

/// Why a volume driver cannot have a name.
fn driver_name_error(name: &str) -> Option<String> {
    if name.len() > MAX_DRIVER_NAME {
        return Some(format!("must be no more than {MAX_DRIVER_NAME} bytes"));
    }
    name::dns_subdomain_error(name)
}
