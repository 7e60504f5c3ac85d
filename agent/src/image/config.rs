//! The image config: what of it the node needs.
//!
//! Source: OCI image-spec `config.md` at v1.1.

use serde::Deserialize;

use super::{error::DocumentError, layer::is_sha256};
use crate::runtime::ImageConfig;

/// Largest manifest or config that is read: the distribution spec's own limit for manifests.
pub(crate) const DOCUMENT_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Inner>,
    rootfs: Rootfs,
}

#[derive(Deserialize)]
struct Rootfs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Inner {
    #[serde(default)]
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    cmd: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    working_dir: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    stop_signal: Option<String>,
    #[serde(default)]
    volumes: Option<std::collections::BTreeMap<String, serde_json::Value>>,
}

/// Parses a config blob into how to run the image and its layers' diff IDs, lowest first.
///
/// # Errors
/// Says what is wrong with the document.
pub(crate) fn parse(bytes: &[u8]) -> Result<(ImageConfig, Vec<String>), DocumentError> {
    let document: Document = serde_json::from_slice(bytes).map_err(DocumentError::Config)?;
    let platform = [
        ("operating system", document.os, "linux"),
        ("architecture", document.architecture, oci_architecture()),
    ];
    for (what, found, ours) in platform {
        // An old config may leave them out.
        if !found.is_empty() && found != ours {
            return Err(DocumentError::Platform { what, found, ours });
        }
    }
    if let Some(bad) = document.rootfs.diff_ids.iter().find(|id| !is_sha256(id)) {
        return Err(DocumentError::Digest {
            of: "diff ID",
            digest: bad.clone(),
        });
    }
    let inner = document.config.unwrap_or_default();
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let config = ImageConfig {
        entrypoint: inner.entrypoint.unwrap_or_default(),
        cmd: inner.cmd.unwrap_or_default(),
        env: inner.env.unwrap_or_default(),
        working_dir: non_empty(inner.working_dir),
        user: non_empty(inner.user),
        stop_signal: non_empty(inner.stop_signal),
        volumes: inner.volumes.unwrap_or_default().into_keys().collect(),
    };
    Ok((config, document.rootfs.diff_ids))
}

/// This machine's architecture in OCI's words.
pub(crate) fn oci_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_members_are_empty() {
        let (config, layers) = parse(
            br#"{"config":{"Entrypoint":null,"Cmd":["sh"],"User":""},"rootfs":{"type":"layers"}}"#,
        )
        .expect("valid");
        assert_eq!(
            (config.cmd, config.user, layers.len()),
            (vec!["sh".to_owned()], None, 0)
        );
    }

    #[test]
    fn foreign_platforms_and_odd_digests_are_refused() {
        for (given, expect) in [
            (r#"{"os":"windows","rootfs":{}}"#, "operating system"),
            (r#"{"architecture":"s390x","rootfs":{}}"#, "architecture"),
            (
                r#"{"rootfs":{"diff_ids":["sha256:../../x"]}}"#,
                "not a sha256 digest",
            ),
            (r#"{"#, "image config"),
        ] {
            let why = parse(given.as_bytes()).expect_err(given).to_string();
            assert!(why.contains(expect), "{why}");
        }
    }
}
