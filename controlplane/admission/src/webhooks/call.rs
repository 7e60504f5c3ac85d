//! One call of a webhook, and what may come of it.
//!
//! Source: `callAttrMutatingHook`, `callHook` in
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`,
//! `.../webhook/errors/statuserror.go` at v1.37.

use coracle_api::status::{Reason, Status};
use coracle_webhook::{CallError, Webhooks};
use serde_json::Value;

use super::{
    hook::{Hook, SideEffects},
    kind::Kind,
    review::{self, Answer, Shown, Unverified},
};
use crate::attributes::Attributes;

/// Why a webhook's answer lets a write not go on.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It was called, or was to be, and has not answered: its failure policy decides.
    Failed {
        /// In upstream's words.
        why: String,
        /// For metrics.
        code: u16,
    },
    /// It said no.
    Denied(Box<Status>),
    /// It could not be asked, whatever its policy says, or its patch could not be taken.
    Internal(Box<Status>),
}

impl Hook {
    /// Asks it about a write. What it tells the client and the audit is passed on.
    pub(crate) async fn call(
        &self,
        webhooks: &Webhooks,
        kind: Kind,
        attributes: &Attributes<'_>,
        shown: Shown<'_>,
    ) -> Result<Answer, Refusal> {
        let answer = self.ask(webhooks, kind, attributes, shown).await?;
        for (key, value) in &answer.audit {
            attributes.annotate(format!("{}/{key}", self.name), value.clone());
        }
        for warning in &answer.warnings {
            attributes.warn(warning);
        }
        if answer.is_allowed {
            return Ok(answer);
        }
        Err(Refusal::Denied(Box::new(denied(
            &self.name,
            &answer.result,
        ))))
    }

    async fn ask(
        &self,
        webhooks: &Webhooks,
        kind: Kind,
        attributes: &Attributes<'_>,
        shown: Shown<'_>,
    ) -> Result<Answer, Refusal> {
        let failed = |why: String, code| Refusal::Failed { why, code };
        if attributes.options.dry_run {
            self.can_be_tried()?;
        }
        let version = self.version.ok_or_else(|| {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            failed(why.to_owned(), 400)
        })?;
        let client = self.client.as_ref();
        let client =
            client.map_err(|why| failed(format!("could not get REST client: {why}"), 500))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review::review(version, &uid, shown);
        let body = body.map_err(|error| Refusal::Internal(Box::new(Status::internal(error))))?;
        let answer = webhooks.post(client, body.into(), self.timeout).await;
        let answer = answer.map_err(|error| match &error {
            CallError::Setup(_) => failed(error.to_string(), 500),
            _ => failed(
                format!("failed to call webhook: {error}"),
                error.code().unwrap_or(503),
            ),
        })?;
        review::verified(&answer, version, &uid, kind).map_err(|error| match error {
            Unverified::Unreadable(why) => failed(format!("failed to call webhook: {why}"), 503),
            Unverified::Invalid(why) => {
                failed(format!("received invalid webhook response: {why}"), 503)
            }
        })
    }

    /// Whether a dry run may call it: nothing must come of one.
    fn can_be_tried(&self) -> Result<(), Refusal> {
        match self.side_effects {
            SideEffects::NoneOnDryRun => Ok(()),
            SideEffects::Some => {
                let why = format!("admission webhook {:?} does not support dry run", self.name);
                Err(Refusal::Internal(Box::new(Status::bad_request(why))))
            }
            SideEffects::Unsaid => Err(Refusal::Failed {
                why: "Webhook SideEffects is nil".to_owned(),
                code: 400,
            }),
        }
    }

    /// What the client is told where the failure policy is `Fail`.
    pub(crate) fn failure(&self, why: &str) -> Status {
        Status::internal(format_args!(
            "failed calling webhook {:?}: {why}",
            self.name
        ))
    }
}

/// What the client is told of a denial: the webhook's own Status, with its name before it.
pub(super) fn denied(webhook: &str, result: &Value) -> Status {
    let mut status = Status::from_json(&with_defaults(result))
        .unwrap_or_else(|| Status::new(400, Reason::Unknown, String::new()));
    let by = format!("admission webhook {webhook:?} denied the request");
    let reason = result["reason"].as_str().unwrap_or_default();
    status.message = match (status.message.as_str(), reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    status
}

/// A denial is a failure, whatever it says of itself.
fn with_defaults(result: &Value) -> Value {
    let mut status = if result.is_object() {
        result.clone()
    } else {
        serde_json::json!({})
    };
    let code = status["code"]
        .as_u64()
        .filter(|code| (400..=599).contains(code));
    status["code"] = code.unwrap_or(400).into();
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    status["status"] = "Failure".into();
    if !status["message"].is_string() {
        status["message"] = "".into();
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_denial_is_told_in_the_webhooks_words() {
        for (result, code, message) in [
            (
                Value::Null,
                400,
                "admission webhook \"h\" denied the request without explanation",
            ),
            (
                json!({"message": "no"}),
                400,
                "admission webhook \"h\" denied the request: no",
            ),
            (
                json!({"reason": "Because", "code": 422}),
                422,
                "admission webhook \"h\" denied the request: Because",
            ),
            (
                json!({"message": "no", "code": 200}),
                400,
                "admission webhook \"h\" denied the request: no",
            ),
            (
                json!({"message": "no", "code": 418, "reason": "Teapot"}),
                418,
                "admission webhook \"h\" denied the request: no",
            ),
        ] {
            let status = denied("h", &result);
            assert_eq!((status.code, &*status.message), (code, message), "{result}");
        }
    }
}
