//! Schemas that strangers wrote, and values against them.
//!
//! An input is a schema and a value with a line of hyphens between.

use coracle_structural::{Schema, rules};
use serde_json::Value;

use crate::patch::SEPARATOR;

/// Whatever the schema is, it is read or refused, and what it says of a value that did not change
/// is nothing. A default that passed the rules fits.
pub(crate) fn schema_and_value(data: &[u8]) {
    let Some(at) = data
        .windows(SEPARATOR.len())
        .position(|window| window == SEPARATOR)
    else {
        return;
    };
    let parsed = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let (Some(schema), Some(value)) = (parsed(&data[..at]), parsed(&data[at + SEPARATOR.len()..]))
    else {
        return;
    };
    let wrong = rules::check(&schema, "spec.validation.openAPIV3Schema", false).violations;
    let _ = (
        rules::unknown_formats(&schema),
        rules::has_validations(&schema),
    );
    let Ok(read) = Schema::read(&schema) else {
        return;
    };
    let found = read.validate(&value);
    assert!(
        read.validate_update(&value, &value).is_empty(),
        "nothing has changed"
    );
    assert_eq!(found, read.validate(&value), "the same again");
    let _ = (read.validate_lists(&value), read.validate_embedded(&value));
    let default = &schema["default"];
    if wrong.is_empty() && !default.is_null() {
        assert!(read.validate(default).is_empty(), "the default fits");
    }
}
