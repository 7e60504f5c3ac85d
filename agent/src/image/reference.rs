//! Image references: from what a manifest says to a full name.
//!
//! The grammar is that of the distribution project; parsing itself is `oci-client`'s. This module only adds
//! the normal form that the store keys on, and upstream's error texts.

use oci_client::Reference;

use crate::runtime::ImageError;

/// Parses `nginx`, `nginx:1.25`, `ghcr.io/a/b@sha256:...` into a full reference.
///
/// # Errors
/// [`ImageError::InvalidName`]: permanent, shown as the waiting reason `InvalidImageName`.
pub fn parse(reference: &str) -> Result<Reference, ImageError> {
    let invalid = |why: String| ImageError::InvalidName { reference: reference.to_owned(), why };
    if reference.is_empty() {
        return Err(invalid("invalid reference format".to_owned()));
    }
    Reference::try_from(reference).map_err(|error| {
        let text = error.to_string();
        let why = if text.contains("uppercase") {
            "invalid reference format: repository name must be lowercase".to_owned()
        } else {
            format!("invalid reference format: {text}")
        };
        invalid(why)
    })
}

/// The name under which a tag is stored, `registry/repository:tag`; `None` for a reference by digest alone.
pub fn tag_name(reference: &Reference) -> Option<String> {
    reference.tag().map(|tag| format!("{}/{}:{tag}", reference.registry(), reference.repository()))
}

/// The name under which a digest is stored, `registry/repository@digest`.
pub fn digest_name(reference: &Reference, digest: &str) -> String {
    format!("{}/{}@{digest}", reference.registry(), reference.repository())
}

/// Whether `reference` is an image ID (`sha256:<64 hex>` or 64 hex digits); the ID in full form.
pub fn as_id(reference: &str) -> Option<String> {
    let hex = reference.strip_prefix("sha256:").unwrap_or(reference);
    (hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))).then(|| format!("sha256:{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_get_registry_library_and_latest() {
        for (given, expect) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("a/b", "docker.io/a/b:latest"),
            ("registry.test:5000/a/b:c", "registry.test:5000/a/b:c"),
            ("localhost/x", "localhost/x:latest"),
        ] {
            let parsed = parse(given).expect(given);
            assert_eq!(tag_name(&parsed).as_deref(), Some(expect));
        }
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for given in ["", "NGINX", "a b", "nginx:", "../etc", "x@sha256:12"] {
            let error = parse(given).expect_err(given).to_string();
            assert!(error.contains("invalid reference format"), "{given}: {error}");
        }
    }

    #[test]
    fn ids_are_recognized_with_and_without_prefix() {
        let hex = "a".repeat(64);
        assert_eq!(as_id(&hex), Some(format!("sha256:{hex}")));
        assert_eq!(as_id(&format!("sha256:{hex}")), Some(format!("sha256:{hex}")));
        assert_eq!(as_id("nginx"), None);
    }
}
