//! Which resources are Kubernetes' own.
//!
//! Source: `IsNativeResource` and `IsExtendedResourceName` in `pkg/apis/core/v1/helper/helpers.go`
//! at v1.37.

use crate::name;

/// What quotas put before the name of a resource.
const REQUESTS: &str = "requests.";

/// Whether a resource is Kubernetes' own: without a prefix, or with one of its own.
#[must_use]
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is somebody else's, such as `example.com/gpu`: counted in whole things and
/// never promised twice. Its name must be one that a quota can limit, too.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with(REQUESTS)
        && name::qualified_name_errors(&format!("{REQUESTS}{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_others_have_a_foreign_prefix() {
        let long = format!("{}.com/gpu", "a".repeat(241));
        for (name, extended) in [
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("pods", false),
            ("kubernetes.io/batch-cpu", false),
            ("example.kubernetes.io/gpu", false),
            ("requests.example.com/gpu", false),
            ("example.com/gpu", true),
            ("kubernetes.iot/gpu", true),
            ("example.com/", false),
            ("example.com/a/b", false),
            // As `requests.` and the name it has one letter too many for a prefix.
            (long.as_str(), false),
        ] {
            assert_eq!(is_extended(name), extended, "{name}");
        }
        assert!(
            is_native("kubernetes.io/batch-cpu")
                && is_native("memory")
                && !is_native("example.com/gpu")
        );
    }
}
