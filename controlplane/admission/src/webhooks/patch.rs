//! What a webhook makes of an object: a JSON patch of what it was shown.
//!
//! Source: `callAttrMutatingHook` in
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go` at v1.37.

use coracle_api::{
    decode::{self, FieldValidation},
    patch::json,
    resource::Gvk,
    status::{Status, quote},
};
use serde_json::Value;

use super::{call::Refusal, hook::Hook, review::Answer};
use crate::matching::{Forms, Invocation, forms::keep_managers};

const JSON_PATCH: &str = "JSONPatch";

impl Hook {
    /// The object of the request after the webhook's patch, if that changes something. `shown` is
    /// what it saw of the object `before`, as a `kind`.
    pub(super) async fn patched(
        &self,
        answer: &Answer,
        forms: &Forms,
        (invocation, kind): (&Invocation, &Gvk),
        (shown, before): (&Value, &Value),
    ) -> Result<Option<Value>, Refusal> {
        if answer.patch.is_empty() {
            return Ok(None);
        }
        let undecodable = |why: &dyn std::fmt::Display| Refusal::Failed {
            why: format!("received undecodable patch in webhook response: {why}"),
            code: 503,
        };
        decode::check_json(&answer.patch).map_err(|status| undecodable(&status.message))?;
        let patch: Value =
            serde_json::from_slice(&answer.patch).map_err(|error| undecodable(&error))?;
        let is_empty = match &patch {
            Value::Array(operations) => operations.is_empty(),
            Value::Null => true,
            _ => {
                let why = "json: cannot unmarshal object into Go value of type jsonpatch.Patch";
                return Err(undecodable(&why));
            }
        };
        if is_empty {
            return Ok(None);
        }
        let internal =
            |why: &dyn std::fmt::Display| Refusal::Internal(Box::new(Status::internal(why)));
        if !shown.is_object() {
            let why = format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                self.name
            );
            return Err(internal(&why));
        }
        if answer.patch_type != JSON_PATCH {
            return Err(Refusal::Failed {
                why: format!("unsupported patch type {}", quote(&answer.patch_type)),
                code: 400,
            });
        }
        let told = |status: Status| internal(&status.message);
        let patched = json::apply_tested(shown, &patch).map_err(|why| internal(&why))?;
        let lenient = FieldValidation::Ignore;
        let decoded = forms.decoded(invocation, kind, &patched, lenient);
        let mut patched = decoded.map_err(told)?;
        keep_managers(&mut patched, shown);
        if patched == *shown {
            return Ok(None);
        }
        let back = forms.back(invocation, patched, before).await;
        back.map(Some).map_err(|status| match status.code {
            // Of a converter, in its own words.
            429 | 500 => Refusal::Internal(Box::new(status)),
            _ => told(status),
        })
    }
}
