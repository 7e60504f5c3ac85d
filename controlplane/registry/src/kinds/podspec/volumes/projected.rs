//! Volumes of several sources.
//!
//! Source: `validateProjectionSources` in `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::{downward_items, file_mode, keys_to_paths, local_file};
use crate::{
    check,
    value::{items, string},
};

pub(super) fn validate(errors: &mut FieldErrors, path: &str, source: &Value) {
    file_mode(
        errors,
        &format!("{path}.defaultMode"),
        &source["defaultMode"],
    );
    let (whole, mut taken) = (path, HashSet::new());
    for (index, source) in items(&source["sources"]).iter().enumerate() {
        let path = format!("{path}.sources[{index}]");
        let mut count = 0;
        for (kind, part) in source.as_object().into_iter().flatten() {
            if part.is_null() {
                continue;
            }
            let path = format!("{path}.{kind}");
            if count > 0 {
                errors.forbidden(path, "may not specify more than 1 volume type per source");
                continue;
            }
            count += 1;
            match kind.as_str() {
                "secret" | "configMap" => {
                    check::required(errors, &format!("{path}.name"), &part["name"]);
                    keys_to_paths(errors, &path, part);
                    let places = item_paths(part);
                    each_once(errors, whole, &mut taken, places, Some(&part["name"]));
                }
                "downwardAPI" => {
                    downward_items(errors, &path, part);
                    each_once(errors, whole, &mut taken, item_paths(part), None);
                }
                "clusterTrustBundle" => {
                    each_once(errors, whole, &mut taken, Some(&part["path"]), None);
                }
                "serviceAccountToken" => token(errors, &path, part),
                _ => {}
            }
        }
        if count == 0 {
            errors.required(path, "must specify a volume type per source");
        }
    }
}

fn item_paths(source: &Value) -> impl Iterator<Item = &Value> {
    items(&source["items"]).iter().map(|item| &item["path"])
}

/// Refuses the path of a file that another source writes, too. As upstream, only if it reads the
/// same, and says so of the whole volume by the source's name, if it has one; the path of a token
/// counts for nothing, and in a volume of one ConfigMap or Secret the last one wins.
fn each_once<'a>(
    errors: &mut FieldErrors,
    volume: &str,
    taken: &mut HashSet<&'a str>,
    paths: impl IntoIterator<Item = &'a Value>,
    name: Option<&Value>,
) {
    for path in paths {
        if !string(path).is_empty() && !taken.insert(string(path)) {
            errors.invalid(volume, name.unwrap_or(path), "conflicting duplicate paths");
        }
    }
}

fn token(errors: &mut FieldErrors, path: &str, token: &Value) {
    let seconds = &token["expirationSeconds"];
    let seconds_path = format!("{path}.expirationSeconds");
    match seconds.as_i64() {
        Some(number) if number < 600 => errors.invalid(
            seconds_path,
            seconds,
            "may not specify a duration less than 10 minutes",
        ),
        Some(number) if number > 1 << 32 => {
            errors.invalid(
                seconds_path,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
        _ => {}
    }
    let file_path = format!("{path}.path");
    if check::required(errors, &file_path, &token["path"]) {
        local_file(errors, &file_path, &token["path"]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_sources_do_not_write_one_file() {
        let items = json!([{"key": "k", "path": "p"}]);
        let fields =
            json!([{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]);
        let config = json!({"configMap": {"name": "a", "items": items}});
        for (other, told) in [
            (json!({"secret": {"name": "b", "items": items}}), "\"b\""),
            (json!({"configMap": {"name": "b", "items": items}}), "\"b\""),
            (json!({"downwardAPI": {"items": fields}}), "\"p\""),
            (json!({"clusterTrustBundle": {"path": "p"}}), "\"p\""),
            (json!({"serviceAccountToken": {"path": "p"}}), ""),
            (json!({"secret": {"name": "b"}}), ""),
        ] {
            let mut errors = FieldErrors::new();
            validate(&mut errors, "v", &json!({"sources": [config, other]}));
            let expect = match told {
                "" => "[]".to_owned(),
                told => format!("v: Invalid value: {told}: conflicting duplicate paths"),
            };
            assert_eq!(errors.to_string(), expect, "{other}");
        }
    }
}
