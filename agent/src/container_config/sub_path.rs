//! Which part of a volume a container mounts (pure).
//!
//! Source: `ExpandContainerVolumeMounts` in `pkg/kubelet/container/helpers.go` and `makeMounts` in
//! `pkg/kubelet/kubelet_pods.go` at v1.37.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::VolumeMount;

use super::expansion::expand;

/// `subPathExpr` names variables that are absent or empty: what it is to keep apart would be one
/// place.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("missing value for {}", names.join(", "))]
pub(crate) struct MissingValue {
    names: Vec<String>,
}

/// The path within the volume; `None` if all of it is asked for, and never if a part is.
pub(super) fn of(
    mount: &VolumeMount,
    env: &HashMap<&str, &str>,
) -> Result<Option<String>, MissingValue> {
    let named = |path: &&str| !path.is_empty();
    let Some(template) = mount.sub_path_expr.as_deref().filter(named) else {
        return Ok(mount.sub_path.as_deref().filter(named).map(str::to_owned));
    };
    let mut missing = BTreeSet::new();
    let path = expand(template, |name| {
        let value = env.get(name).copied().filter(named);
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value
    });
    if missing.is_empty() {
        Ok(Some(path))
    } else {
        Err(MissingValue {
            names: missing.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_asked_for_is_never_the_whole() {
        let env = HashMap::from([("A", "a"), ("B", "b"), ("EMPTY", "")]);
        for (path, template, expected) in [
            (None, None, Ok(None)),
            (Some(""), Some(""), Ok(None)),
            (Some("data"), None, Ok(Some("data"))),
            (Some("$(A)"), None, Ok(Some("$(A)"))),
            (None, Some("logs/$(A)-$(B)"), Ok(Some("logs/a-b"))),
            (None, Some("$$(EMPTY)"), Ok(Some("$(EMPTY)"))),
            (None, Some("$(EMPTY)"), Err("missing value for EMPTY")),
            (None, Some("$(ABSENT)"), Err("missing value for ABSENT")),
            (
                None,
                Some("x/$(EMPTY)/$(A)/$(ABSENT)/$(EMPTY)"),
                Err("missing value for ABSENT, EMPTY"),
            ),
        ] {
            let mount = VolumeMount {
                sub_path: path.map(str::to_owned),
                sub_path_expr: template.map(str::to_owned),
                ..VolumeMount::default()
            };
            let got = of(&mount, &env).map_err(|error| error.to_string());
            assert_eq!(
                got,
                expected
                    .map(|path| path.map(str::to_owned))
                    .map_err(str::to_owned),
                "{path:?} {template:?}"
            );
        }
    }
}
