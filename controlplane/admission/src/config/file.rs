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
    found: (&str, &str),
    expected: (&str, &str),
) -> Result<(), AdmissionConfigError> {
    expect_one(found, &[expected])
}

/// The same where several versions are known.
pub(crate) fn expect_one(
    found: (&str, &str),
    expected: &[(&str, &str)],
) -> Result<(), AdmissionConfigError> {
    if expected.contains(&found) {
        return Ok(());
    }
    let (api_version, kind) = found;
    let expected = expected.iter();
    let expected: Vec<String> = expected
        .map(|(version, kind)| format!("{kind} of {version}"))
        .collect();
    Err(AdmissionConfigError(format!(
        "{kind} of {api_version}: expected {}",
        expected.join(", or ")
    )))
}

/// What stands in `value`; what is left empty is left out, as Go has it.
pub(crate) fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, AdmissionConfigError> {
    without_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| AdmissionConfigError(error.to_string()))
}
