//! A status on the wire: the object of `kind: Status`, written and read.

use serde_json::{Map, Value, json};

use super::{Cause, Details, Reason, Status};

impl Status {
    /// The object that goes over the wire, `kind: Status`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut out = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if self.reason != Reason::Unknown {
            out["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            out["details"] = details.to_json();
        }
        out
    }

    /// Reads what [`Status::to_json`] wrote; `None` for anything else.
    #[must_use]
    pub fn from_json(object: &Value) -> Option<Self> {
        if object.get("kind")?.as_str()? != "Status" {
            return None;
        }
        Some(Self {
            code: u16::try_from(object.get("code").and_then(Value::as_u64).unwrap_or(500))
                .unwrap_or(500),
            reason: object
                .get("reason")
                .and_then(Value::as_str)
                .map_or(Reason::Unknown, Reason::from_text),
            message: object
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            details: object
                .get("details")
                .map(|d| Box::new(Details::from_json(d))),
            warnings: Vec::new(),
        })
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                out.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            out.insert(
                "causes".to_owned(),
                self.causes.iter().map(Cause::to_json).collect(),
            );
        }
        if self.retry_after_seconds != 0 {
            out.insert(
                "retryAfterSeconds".to_owned(),
                self.retry_after_seconds.into(),
            );
        }
        Value::Object(out)
    }

    fn from_json(value: &Value) -> Self {
        let causes = value
            .get("causes")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        Self {
            name: member(value, "name"),
            group: member(value, "group"),
            kind: member(value, "kind"),
            uid: member(value, "uid"),
            causes: causes
                .iter()
                .map(|c| Cause {
                    kind: member(c, "reason"),
                    message: member(c, "message"),
                    field: member(c, "field"),
                })
                .collect(),
            retry_after_seconds: value
                .get("retryAfterSeconds")
                .and_then(Value::as_u64)
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
        }
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in [
            ("reason", &self.kind),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                out.insert(key.to_owned(), text.as_str().into());
            }
        }
        Value::Object(out)
    }
}

fn member(value: &Value, key: &str) -> String {
    value
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
