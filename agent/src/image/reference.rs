//! Image references: from what a manifest says to a full name.
//!
//! The grammar and the short forms are those of the distribution project. It is read here by hand:
//! the same as a regular expression, as `oci-client` has it, takes five megabytes for as long as
//! the process runs.
//!
//! Source: `github.com/distribution/reference` (`regexp.go`, `normalize.go`) at v0.6.

use oci_client::Reference;

use crate::runtime::ImageError;

const HUB: &str = "docker.io";
const HUB_LEGACY: &str = "index.docker.io";
const REPOSITORY_MAX: usize = 255;
const TAG_MAX: usize = 128;
const INVALID: &str = "invalid reference format";

/// Parses `nginx`, `nginx:1.25`, `ghcr.io/a/b@sha256:...` into a full reference.
///
/// # Errors
/// [`ImageError::InvalidName`]: permanent, shown as the waiting reason `InvalidImageName`.
pub fn parse(reference: &str) -> Result<Reference, ImageError> {
    read(reference).map_err(|why| ImageError::InvalidName {
        reference: reference.to_owned(),
        why,
    })
}

fn read(text: &str) -> Result<Reference, String> {
    let (rest, digest) = text
        .split_once('@')
        .map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    // A colon with a slash behind it is that of a port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let (registry, path) = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => (HUB, name),
    };
    let registry = if registry == HUB_LEGACY {
        HUB
    } else {
        registry
    };
    let official = registry == HUB && !path.contains('/');
    let repository = if official {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    if !is_path(path) && is_path(&path.to_ascii_lowercase()) {
        return Err(format!(
            "{INVALID}: repository name ({repository}) must be lowercase"
        ));
    }
    if !is_host(registry) || !is_path(path) || !tag.is_none_or(is_tag) {
        return Err(INVALID.to_owned());
    }
    if repository.len() > REPOSITORY_MAX {
        return Err(format!(
            "{INVALID}: repository name must not be more than {REPOSITORY_MAX} characters"
        ));
    }
    let (registry, tag) = (registry.to_owned(), tag.map(str::to_owned));
    let Some(digest) = digest else {
        return Ok(Reference::with_tag(
            registry,
            repository,
            tag.unwrap_or_else(|| "latest".to_owned()),
        ));
    };
    check_digest(digest).map_err(|why| format!("{INVALID}: {why}"))?;
    Ok(match tag {
        Some(tag) => Reference::with_tag_and_digest(registry, repository, tag, digest.to_owned()),
        None => Reference::with_digest(registry, repository, digest.to_owned()),
    })
}

/// `registry.test:5000`.
fn is_host(text: &str) -> bool {
    let (host, port) = text
        .split_once(':')
        .map_or((text, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let inner = label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
        inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Elements between slashes; each of small letters and digits, between them `.`, `_`, `__` or any
/// number of `-`.
fn is_path(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    text.split('/').all(|element| {
        element.starts_with(is_plain)
            && element.ends_with(is_plain)
            && element.split(is_plain).all(is_separator)
    })
}

fn is_tag(text: &str) -> bool {
    let inner = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    inner && !text.starts_with(['.', '-']) && (1..=TAG_MAX).contains(&text.len())
}

fn check_digest(text: &str) -> Result<(), &'static str> {
    let (algorithm, hex) = text
        .split_once(':')
        .ok_or("invalid checksum digest format")?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err("unsupported digest algorithm"),
    };
    if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("invalid checksum digest format");
    }
    if hex.len() == length {
        Ok(())
    } else {
        Err("invalid checksum digest length")
    }
}

/// The name under which a tag is stored, `registry/repository:tag`; `None` for a reference by
/// digest alone.
pub fn tag_name(reference: &Reference) -> Option<String> {
    reference
        .tag()
        .map(|tag| format!("{}/{}:{tag}", reference.registry(), reference.repository()))
}

/// The name under which a digest is stored, `registry/repository@digest`.
pub fn digest_name(reference: &Reference, digest: &str) -> String {
    format!(
        "{}/{}@{digest}",
        reference.registry(),
        reference.repository()
    )
}

/// Whether `reference` is an image ID (`sha256:<64 hex>` or 64 hex digits); the ID in full form.
pub fn as_id(reference: &str) -> Option<String> {
    let hex = reference.strip_prefix("sha256:").unwrap_or(reference);
    (hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
        .then(|| format!("sha256:{hex}"))
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
            ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
            ("a--b/c__d/e.f:V1_2-3", "docker.io/a--b/c__d/e.f:V1_2-3"),
        ] {
            let parsed = parse(given).expect(given);
            assert_eq!(tag_name(&parsed).as_deref(), Some(expect));
        }
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        let long_tag = format!("nginx:{}", "x".repeat(129));
        for given in [
            "",
            "NGINX",
            "a b",
            "nginx:",
            "../etc",
            "x@sha256:12",
            "x@md5:00",
            "x@",
            "a//b",
            "/a",
            "a/",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "-x.test/a",
            "x.test:/a",
            "x.test:a/b",
            "nginx:.a",
            "nginx:\u{e9}",
            &long_tag,
        ] {
            let error = parse(given).expect_err(given).to_string();
            assert!(
                error.contains("invalid reference format"),
                "{given}: {error}"
            );
        }
        let error = parse("Nginx:1").expect_err("a capital").to_string();
        assert!(
            error.contains("repository name (library/Nginx) must be lowercase"),
            "{error}"
        );
    }

    #[test]
    fn digests_stand_alone_or_behind_a_tag() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (tag, expect) in [("", None), (":1.25", Some("1.25"))] {
            let parsed = parse(&format!("ghcr.io/a/b{tag}@{digest}")).expect("a reference");
            assert_eq!((parsed.registry(), parsed.repository()), ("ghcr.io", "a/b"));
            assert_eq!((parsed.tag(), parsed.digest()), (expect, Some(&*digest)));
        }
    }

    #[test]
    fn short_texts_are_read_as_by_the_regular_expression() {
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts
                .iter()
                .flat_map(|text| "a1.:/-@".chars().map(move |c| format!("{text}{c}")));
            texts = longer.collect();
            for text in &texts {
                assert_eq!(read(text).ok(), Reference::try_from(&**text).ok(), "{text}");
            }
        }
    }

    #[test]
    fn ids_are_recognized_with_and_without_prefix() {
        let hex = "a".repeat(64);
        assert_eq!(as_id(&hex), Some(format!("sha256:{hex}")));
        assert_eq!(
            as_id(&format!("sha256:{hex}")),
            Some(format!("sha256:{hex}"))
        );
        assert_eq!(as_id("nginx"), None);
    }
}
