//! Files of one volume at the same place, or one below the other: the last one written wins, or the
//! volume cannot be made.
//!
//! Source: `warningsForOverlappingVirtualPaths` in `pkg/api/pod/warnings.go`. Names that only begin
//! alike, as `a` and `ab`, are told apart here.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::value::{items, string};

/// Warnings about all volumes of a pod, each said once.
pub(super) fn warnings(volumes: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in items(volumes) {
        let (name, mut files) = (string(&volume["name"]), Files::default());
        for (kind, called, named) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let what = what(name, called, &volume[kind][named]);
            clashes(&mut warnings, &mut files, &what, paths(&volume[kind]));
        }
        for source in items(&volume["projected"]["sources"]) {
            for (kind, called, named) in [
                ("configMap", "Projected ConfigMap", "name"),
                ("secret", "Projected Secret", "name"),
                ("downwardAPI", "Projected DownwardAPI", ""),
                ("serviceAccountToken", "Projected ServiceAccountToken", ""),
                ("clusterTrustBundle", "Projected ClusterTrustBundle", "name"),
            ] {
                let part = &source[kind];
                let named = match kind {
                    "clusterTrustBundle" if !part["name"].is_string() => "signerName",
                    _ => named,
                };
                let what = what(name, called, &part[named]);
                let own = part["path"].as_str().into_iter().chain(paths(part));
                clashes(&mut warnings, &mut files, &what, own);
            }
        }
    }
    let mut said = HashSet::new();
    warnings.retain(|warning| said.insert(warning.clone()));
    warnings
}

fn paths(source: &Value) -> impl Iterator<Item = &str> {
    items(&source["items"])
        .iter()
        .map(|item| string(&item["path"]))
}

/// Such as `volume "v" (ConfigMap "c")`.
fn what(volume: &str, called: &str, name: &Value) -> String {
    match name.as_str() {
        Some(name) => format!("volume {volume:?} ({called} {name:?})"),
        None => format!("volume {volume:?} ({called})"),
    }
}

fn clashes<'a>(
    warnings: &mut Vec<String>,
    files: &mut Files<'a>,
    what: &str,
    paths: impl Iterator<Item = &'a str>,
) {
    for path in paths.map(|path| path.trim_end_matches('/')) {
        if let Some(other) = files.take(path) {
            warnings.push(format!(
                "{what}: overlapping paths: {path:?} with {other:?}"
            ));
        }
    }
}

/// The paths of one volume's files as a tree: telling whether one clashes costs no more than its
/// own length.
#[derive(Default)]
struct Files<'a> {
    /// By the number of the directory, 0 for the volume itself, and a name in it.
    entries: HashMap<(usize, &'a str), Entry<'a>>,
}

struct Entry<'a> {
    number: usize,
    /// The first path that came by here, and whether one ended here.
    path: &'a str,
    is_file: bool,
}

impl<'a> Files<'a> {
    /// Takes the path. A path that is the same, above or below it if there was one.
    fn take(&mut self, path: &'a str) -> Option<&'a str> {
        let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
        let (mut directory, mut clash) = (0, None);
        while let Some(name) = names.next() {
            let (next, is_last) = (self.entries.len() + 1, names.peek().is_none());
            let mut is_known = true;
            let entry = self.entries.entry((directory, name)).or_insert_with(|| {
                is_known = false;
                Entry {
                    number: next,
                    path,
                    is_file: false,
                }
            });
            if is_known && (entry.is_file || is_last) {
                clash = clash.or(Some(entry.path));
            }
            if is_last && !entry.is_file {
                entry.is_file = true;
                // Whatever clashes with it from now on clashes with this file.
                entry.path = path;
            }
            directory = entry.number;
        }
        clash
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_at_one_place_are_pointed_out() {
        let items = |paths: &[&str]| {
            let items = paths.iter().map(|path| json!({"key": "k", "path": path}));
            Value::from(items.collect::<Vec<_>>())
        };
        for (volume, expect) in [
            (
                json!({"configMap": {"name": "c", "items": items(&["a", "ab", "b/c", "b/d"])}}),
                vec![],
            ),
            (
                json!({"configMap": {"name": "c", "items": items(&["a", "a"])}}),
                vec![r#"volume "v" (ConfigMap "c"): overlapping paths: "a" with "a""#],
            ),
            (
                json!({"secret": {"secretName": "s", "items": items(&["a/b", "a/"])}}),
                vec![r#"volume "v" (Secret "s"): overlapping paths: "a" with "a/b""#],
            ),
            (
                json!({"downwardAPI": {"items": items(&["a", "a/b", "a/b"])}}),
                vec![r#"volume "v" (DownwardAPI): overlapping paths: "a/b" with "a""#],
            ),
            (
                json!({"projected": {"sources": [
                    {"secret": {"name": "s", "items": items(&["token/x"])}},
                    {"serviceAccountToken": {"path": "token"}},
                    {"clusterTrustBundle": {"signerName": "x.test/y", "path": "token/x/y"}},
                ]}}),
                vec![
                    r#"volume "v" (Projected ServiceAccountToken): overlapping paths: "token" with "token/x""#,
                    r#"volume "v" (Projected ClusterTrustBundle "x.test/y"): overlapping paths: "token/x/y" with "token""#,
                ],
            ),
        ] {
            let mut volume = volume;
            volume["name"] = "v".into();
            assert_eq!(warnings(&json!([volume])), expect, "{volume}");
        }
    }
}
