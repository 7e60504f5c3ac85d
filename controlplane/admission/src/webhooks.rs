//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: others are asked, over HTTPS, what a
//! write is to become and whether it may be.
//!
//! ```text
//! Hooks (of all configurations, by name) > matching > dry run? > AdmissionReview > POST > verified > allowed, denied, failed
//! mutating     one after the other; each sees what those before it have made of the object
//! validating   all at the same time; the first in order that refuses is told
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`hook`] | one webhook, as its configuration has it |
//! | [`index`] | all of them, kept in step with the watch cache |
//! | [`kind`] | mutating or validating |
//! | [`review`] | what is sent, and what is made of the answer |
//! | [`call`] | one call, and what may come of it |
//! | [`dispatch`] | which are called for a write; how failures count |
//! | [`mutating`], [`validating`] | the plugins |
//! | [`patch`] | what a webhook makes of an object |
//! | [`metrics`] | what is counted |
//!
//! Nothing is locked while a webhook is waited for, so one that hangs holds up its own writes
//! alone. How a webhook is reached is `coracle_webhook`'s.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook` at v1.37.

mod call;
mod dispatch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hook;
mod index;
mod kind;
pub(crate) mod metrics;
mod mutating;
mod patch;
mod review;
mod validating;

pub(crate) use mutating::MutatingAdmissionWebhook;
pub(crate) use validating::ValidatingAdmissionWebhook;
