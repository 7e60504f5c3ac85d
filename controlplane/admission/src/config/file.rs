//! What files that configure admission have in common: how they are read, and what is said of one
//! that cannot be.

use coracle_api::component_config::without_nulls;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a configuration cannot be used: where in it, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AdmissionConfigError(pub(crate) String);

/// What stands in `value` besides its head, `apiVersion` and `kind`, which has to be one of these;
/// a pair of nothing where a file may have none.
pub(crate) fn read_of<T: DeserializeOwned>(
    expected: &[(&str, &str)],
    mut value: Value,
) -> Result<T, AdmissionConfigError> {
    let mut take = |field: &str| match value.as_object_mut().and_then(|all| all.remove(field)) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(AdmissionConfigError(format!(
            "{field}: invalid type: {other}, expected a string"
        ))),
    };
    let (api_version, kind) = (take("apiVersion")?, take("kind")?);
    if expected.contains(&(&*api_version, &*kind)) {
        return read(value);
    }
    let known = expected.iter().filter(|(version, _)| !version.is_empty());
    let known: Vec<String> = known
        .map(|(version, kind)| format!("{kind} of {version}"))
        .collect();
    let found = match (&*api_version, &*kind) {
        ("", _) => "no apiVersion".to_owned(),
        (_, "") => "no kind".to_owned(),
        (version, kind) => format!("{kind} of {version}"),
    };
    let known = known.join(", or ");
    Err(AdmissionConfigError(format!("{found}: expected {known}")))
}

/// What stands in `value`; what is left empty is left out, as Go has it.
pub(crate) fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, AdmissionConfigError> {
    without_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| AdmissionConfigError(error.to_string()))
}
