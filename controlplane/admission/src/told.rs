//! What a client says of a write besides the object: `CreateOptions` and its like, as webhooks and
//! expressions are told of them.

use coracle_registry::store::delete::{DeleteOptions, Propagation};
use serde_json::{Map, Value, json};

/// The options of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told<'a> {
    /// Such as `CreateOptions`; empty for what has none.
    pub kind: &'static str,
    /// Empty if it was not said; as what follows.
    pub field_manager: &'a str,
    /// Such as `Strict`.
    pub field_validation: &'a str,
    /// Of a deletion.
    pub delete: Option<&'a DeleteOptions>,
}

impl Told<'_> {
    /// As the API has them; null if there are none.
    #[must_use]
    pub fn to_value(&self, dry_run: bool) -> Value {
        if self.kind.is_empty() {
            return Value::Null;
        }
        let mut options = Map::new();
        options.insert("kind".to_owned(), self.kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        let mut put = |name: &str, value: Value| {
            if !value.is_null() && value != "" {
                options.insert(name.to_owned(), value);
            }
        };
        if let Some(delete) = self.delete {
            put("gracePeriodSeconds", delete.grace_secs.into());
            put("preconditions", preconditions(delete));
            put("propagationPolicy", delete.propagation.map(name).into());
        }
        put("dryRun", if dry_run { json!(["All"]) } else { Value::Null });
        put("fieldManager", self.field_manager.into());
        put("fieldValidation", self.field_validation.into());
        Value::Object(options)
    }
}

fn preconditions(delete: &DeleteOptions) -> Value {
    let mut all = Map::new();
    for (name, value) in [
        ("uid", &delete.uid),
        ("resourceVersion", &delete.resource_version),
    ] {
        if let Some(value) = value {
            all.insert(name.to_owned(), value.as_str().into());
        }
    }
    if all.is_empty() {
        Value::Null
    } else {
        all.into()
    }
}

fn name(propagation: Propagation) -> &'static str {
    match propagation {
        Propagation::Orphan => "Orphan",
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_was_said_and_no_more() {
        assert_eq!(Told::default().to_value(true), Value::Null);
        let create = Told {
            kind: "CreateOptions",
            field_manager: "kubectl",
            ..Told::default()
        };
        assert_eq!(
            create.to_value(true),
            json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
                "fieldManager": "kubectl"})
        );
        let options = DeleteOptions {
            grace_secs: Some(0),
            uid: Some("u".to_owned()),
            propagation: Some(Propagation::Orphan),
            ..DeleteOptions::default()
        };
        let delete = Told {
            kind: "DeleteOptions",
            delete: Some(&options),
            ..Told::default()
        };
        assert_eq!(
            delete.to_value(false),
            json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u"}, "propagationPolicy": "Orphan"})
        );
    }
}
