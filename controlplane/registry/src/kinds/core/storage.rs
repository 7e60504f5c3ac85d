//! What PersistentVolumes and claims on them have in common: access modes, amounts, classes.

use coracle_api::{status::FieldErrors, volume::BETA_STORAGE_CLASS};
use serde_json::Value;

use crate::{
    kinds::podspec::resources,
    value::{items, string},
};

/// Shown for what was not said.
pub(super) const UNSET: &str = "<unset>";
const MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const ONE_POD: &str = "ReadWriteOncePod";

/// Only known access modes, and the most exclusive one alone.
pub(super) fn check_access_modes(errors: &mut FieldErrors, path: &str, modes: &Value) {
    let modes = items(modes);
    for mode in modes.iter().filter(|mode| !MODES.contains(&string(mode))) {
        errors.not_supported(path, mode, MODES);
    }
    if modes.iter().any(|mode| mode == ONE_POD) && modes.iter().any(|mode| mode != ONE_POD) {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Access modes as kubectl shows them: `RWO,ROX`.
pub(super) fn access_modes(modes: &Value) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = short
        .iter()
        .filter(|(mode, _)| items(modes).iter().any(|one| one == mode));
    shown.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// More than nothing.
pub(super) fn positive(errors: &mut FieldErrors, path: &str, amount: &Value) {
    if let Some(quantity) = resources::quantity(errors, path, amount)
        && (quantity.is_negative() || quantity.is_zero())
    {
        errors.invalid(path, amount, "must be greater than zero");
    }
}

/// The name of the StorageClass.
pub(super) fn class(object: &Value) -> &str {
    match object["metadata"]["annotations"][BETA_STORAGE_CLASS].as_str() {
        Some(class) => class,
        None => string(&object["spec"]["storageClassName"]),
    }
}
