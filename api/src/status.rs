//! Error answers of the API: `metav1.Status` with upstream's reasons, codes and texts.
//!
//! Headers and bodies of answers are the API server's; what is wrong with a field is collected by
//! [`FieldErrors`].
//!
//! Source: `k8s.io/apimachinery/pkg/api/errors/errors.go`.

mod field;
mod quote;
mod reason;
mod wire;

pub use self::field::{FieldError, FieldErrorKind, FieldErrors};
pub use self::quote::quote;
pub use self::reason::Reason;

use std::fmt;

use crate::resource::{GroupResource, Gvk};

/// A failure as the API answers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: Reason,
    /// Text for people.
    pub message: String,
    /// Of what and why.
    pub details: Option<Box<Details>>,
    /// What the client is told besides: no part of the body.
    pub warnings: Vec<String>,
}

/// `status.details`. Empty members are left out on the wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group.
    pub group: String,
    /// Kind, or for most reasons the resource.
    pub kind: String,
    /// UID of the object.
    pub uid: String,
    /// Single causes.
    pub causes: Vec<Cause>,
    /// When to try again; 0 is left out.
    pub retry_after_seconds: u32,
}

/// One entry of `status.details.causes`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cause {
    /// `reason` on the wire, such as `FieldValueRequired`.
    pub kind: String,
    /// Text for people.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

impl Status {
    /// A status of any code.
    #[must_use]
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            warnings: Vec::new(),
        }
    }

    /// The same status, told after these warnings.
    #[must_use]
    pub fn after(mut self, warnings: &[String]) -> Self {
        self.warnings.splice(..0, warnings.iter().cloned());
        self
    }

    /// The same status with details.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same status with `details.retryAfterSeconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 404: no such object.
    #[must_use]
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(
            404,
            Reason::NotFound,
            format!("{resource} {} not found", quote(name)),
        )
        .with_details(Details::of(resource, name))
    }

    /// 404 for a path that no resource is served under.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        )
        .with_details(Details::default())
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(
            409,
            Reason::AlreadyExists,
            format!("{resource} {} already exists", quote(name)),
        )
        .with_details(Details::of(resource, name))
    }

    /// 409: every generated name was taken.
    #[must_use]
    pub fn generate_name_conflict(resource: &GroupResource, name: &str, retry_secs: u32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        Self::new(409, Reason::AlreadyExists, message)
            .with_details(Details::of(resource, name))
            .with_retry_after(retry_secs)
    }

    /// 409: the object changed meanwhile, or a precondition does not hold.
    #[must_use]
    pub fn conflict(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            quote(name)
        );
        Self::new(409, Reason::Conflict, message).with_details(Details::of(resource, name))
    }

    /// 409 with upstream's usual reason: the given resourceVersion is not the current one.
    #[must_use]
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 409 of a server-side apply.
    #[must_use]
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        Self::new(409, Reason::Conflict, message).with_details(Details {
            causes,
            ..Details::default()
        })
    }

    /// 422: the object breaks rules.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "the errors end here")]
    pub fn invalid(kind: &Gvk, name: &str, errors: FieldErrors) -> Self {
        let mut message = format!("{} {} is invalid", kind.group_kind(), quote(name));
        if !errors.is_empty() {
            message.push_str(&format!(": {errors}"));
        }
        Self::new(422, Reason::Invalid, message).with_details(Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes: errors.causes(),
            ..Details::default()
        })
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 403: allowed to nobody like you. An empty resource or name leaves that part of the sentence
    /// out.
    #[must_use]
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = match (
            resource.group.is_empty() && resource.resource.is_empty(),
            name.is_empty(),
        ) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", quote(name)),
        };
        Self::new(403, Reason::Forbidden, message).with_details(Details::of(resource, name))
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 405: the verb exists, but not on this resource.
    #[must_use]
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            quote(&resource.to_string())
        );
        Self::new(405, Reason::MethodNotAllowed, message).with_details(Details::of(resource, ""))
    }

    /// 406: none of the accepted media types is spoken here.
    #[must_use]
    pub fn not_acceptable(types: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            types.join(", ")
        );
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// 415: the body's media type is not understood.
    #[must_use]
    pub fn unsupported_media_type(types: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            types.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// 410: the asked revision is compacted.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// 504: the asked revision is not here yet.
    #[must_use]
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::timeout(&message, 1);
        status.details.get_or_insert_default().causes.push(Cause {
            kind: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        });
        status
    }

    /// 413: the body has more bytes than `limit`.
    #[must_use]
    pub fn request_entity_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, Reason::RequestEntityTooLarge, message)
    }

    /// 429 of the limit on requests in flight.
    #[must_use]
    pub fn too_many_requests(retry_secs: u32) -> Self {
        Self::too_many_requests_because("Too many requests, please try again later.", retry_secs)
    }

    /// 429 with a text of its own, such as an eviction that a disruption budget forbids.
    #[must_use]
    pub fn too_many_requests_because(message: impl Into<String>, retry_secs: u32) -> Self {
        Self::new(429, Reason::TooManyRequests, message).with_retry_after(retry_secs)
    }

    /// 504: not done in time; it may still happen.
    #[must_use]
    pub fn timeout(message: &str, retry_secs: u32) -> Self {
        Self::new(504, Reason::Timeout, format!("Timeout: {message}")).with_retry_after(retry_secs)
    }

    /// 500 `ServerTimeout`: a passing failure, try again.
    #[must_use]
    pub fn server_timeout(resource: &GroupResource, operation: &str, retry_secs: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::new(500, Reason::ServerTimeout, message)
            .with_details(Details::of(resource, operation))
            .with_retry_after(retry_secs)
    }

    /// 500.
    #[must_use]
    pub fn internal(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self::new(
            500,
            Reason::InternalError,
            format!("Internal error occurred: {message}"),
        )
        .with_details(Details {
            causes: vec![Cause {
                message,
                ..Cause::default()
            }],
            ..Details::default()
        })
    }

    /// 503.
    #[must_use]
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Details {
    /// Details that name one object of a resource.
    #[must_use]
    pub fn of(resource: &GroupResource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
