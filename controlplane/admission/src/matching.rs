//! Which requests a webhook or a policy is about, and what its expressions see of one.
//!
//! ```text
//! Criteria::find: rules (those left out first) > equivalent resources > namespaceSelector > objectSelector  -> Invocation
//! Forms::shown: the objects in the version of the Invocation
//! MatchConditions::judge: expressions about them
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`rules`] | operations, groups, versions, resources, scopes |
//! | [`criteria`] | rules with selectors and a match policy, as they are written |
//! | [`exempt`] | what nobody is asked about |
//! | [`place`] | name and namespace of a request |
//! | [`namespaces`] | the namespace that a request is in |
//! | [`forms`] | objects in one version of their kind, and back |
//! | [`review`] | the request as `AdmissionRequest` has it |
//! | [`variables`] | what expressions see |
//! | [`conditions`] | match conditions |
//! | [`metrics`] | what is counted of them |
//!
//! What is written was validated when it was stored; what cannot be read all the same matches
//! nothing or fails, as upstream has it.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/generic/webhook.go` and
//! `.../plugin/policy/matching/matching.go` at v1.37.

pub mod conditions;
pub mod criteria;
pub mod exempt;
pub mod forms;
pub mod metrics;
pub mod namespaces;
pub mod place;
pub mod review;
pub mod rules;
pub mod variables;

#[cfg(test)]
mod tests;

pub use conditions::{Judged, MatchConditions, Verdict};
pub use criteria::{Criteria, Invocation};
pub use exempt::{Asked, asked, asked_of_policies};
pub use forms::Forms;
pub use metrics::{ConditionMetrics, Conditioned};
pub use namespaces::Namespaces;
pub use rules::{About, Rule};
pub use variables::Seen;
