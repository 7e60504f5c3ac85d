//! What files that configure admission have in common: how they are read, and what is said of one
//! that cannot be.

use coracle_api::component_config::without_nulls;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a configuration cannot be used: where in it, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AdmissionConfigError(pub(crate) String);

pub(crate) fn expect(
    (api_version, kind): (&str, &str),
    (expected_version, expected_kind): (&str, &str),
) -> Result<(), AdmissionConfigError> {
    if (api_version, kind) == (expected_version, expected_kind) {
        return Ok(());
    }
    Err(AdmissionConfigError(format!(
        "{kind} of {api_version}: expected {expected_kind} of {expected_version}"
    )))
}

/// What stands in `value`; what is left empty is left out, as Go has it.
pub(crate) fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, AdmissionConfigError> {
    without_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| AdmissionConfigError(error.to_string()))
}
