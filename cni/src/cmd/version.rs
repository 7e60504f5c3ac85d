//! VERSION: what the plugin speaks.

use serde_json::{Value, json};

use crate::conf::{DEFAULT_VERSION, VERSIONS};

/// The object that VERSION prints. `asked` is the configuration's `cniVersion`.
#[must_use]
pub fn version(asked: Option<&str>) -> Value {
    let mut supported = VERSIONS;
    supported.sort_unstable();
    json!({"cniVersion": asked.unwrap_or(DEFAULT_VERSION), "supportedVersions": supported})
}
