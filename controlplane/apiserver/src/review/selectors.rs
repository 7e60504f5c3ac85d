//! Selectors of an access review, as the query of the request in question would have them (pure).
//!
//! Source: `pkg/registry/authorization/util/helpers.go` at v1.37: what cannot be said is left out,
//! which asks for more than was meant and never for less.

use serde_json::Value;

/// Of `fieldSelector`.
pub(super) fn of_fields(selector: &Value) -> Option<String> {
    said(selector, |key, operator, values| match (operator, values) {
        ("In", [value]) => Some(format!("{key}={value}")),
        ("NotIn", [value]) => Some(format!("{key}!={value}")),
        _ => None,
    })
}

/// Of `labelSelector`.
pub(super) fn of_labels(selector: &Value) -> Option<String> {
    said(selector, |key, operator, values| {
        let values = values.join(",");
        match operator {
            "In" => Some(format!("{key} in ({values})")),
            "NotIn" => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.to_owned()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    })
}

fn said(selector: &Value, one: impl Fn(&str, &str, &[&str]) -> Option<String>) -> Option<String> {
    if let Some(raw) = selector["rawSelector"]
        .as_str()
        .filter(|raw| !raw.is_empty())
    {
        return Some(raw.to_owned());
    }
    let requirements = selector["requirements"].as_array()?.iter();
    let parts: Vec<String> = requirements
        .filter_map(|requirement| {
            let values = requirement["values"].as_array().into_iter().flatten();
            let values: Vec<&str> = values.filter_map(Value::as_str).collect();
            let operator = requirement["operator"].as_str()?;
            one(requirement["key"].as_str()?, operator, &values)
        })
        .collect();
    Some(parts.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_read_as_in_a_query() {
        let all = json!({"requirements": [
            {"key": "a", "operator": "In", "values": ["x"]},
            {"key": "b", "operator": "NotIn", "values": ["y"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
            {"key": "e", "operator": "Near"},
        ]});
        assert_eq!(of_fields(&all).as_deref(), Some("a=x,b!=y"));
        assert_eq!(
            of_labels(&all).as_deref(),
            Some("a in (x),b notin (y),c,!d")
        );
        let raw = json!({"rawSelector": "a=b"});
        assert_eq!(of_fields(&raw).as_deref(), Some("a=b"));
        assert_eq!(of_labels(&raw).as_deref(), Some("a=b"));
        assert_eq!(of_labels(&json!(null)), None);
    }
}
