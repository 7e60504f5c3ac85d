//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies: what both have in common.
//!
//! ```text
//! a task       index: policies and bindings of the cache > compiled, once for each generation
//! each write   index > matching (policy, then binding) > params > validation or mutation, for each of them
//! ```
//!
//! | module | does |
//! |---|---|
//! | `failure` | what comes of a mutating policy that fails |
//! | `index` | which policies there are, compiled, with their bindings |
//! | `params` | the objects that a binding hands to its policy |
//! | `view` | a write as the expressions of a policy see it |
//! | `validation` | the expressions of a validating policy |
//! | `mutation` | the expressions of a mutating policy, and what they make of an object |
//! | `type_check` | whether a validating policy fits the kinds that it is about |
//! | `metrics` | what is counted of them |
//! | `reinvocation` | which mutating policies look once more |
//!
//! What is written of a policy is checked when it is written (`coracle_registry`). Policies are
//! never asked about policies, nor about reviews: nobody could take back a policy that refuses
//! everything. Those from files are asked about policies, too.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy` at v1.37.

mod failure;
mod index;
pub(crate) mod metrics;
mod mutation;
mod params;
pub(crate) mod reinvocation;
pub(crate) mod type_check;
mod validation;
mod view;

pub(crate) mod mutating;
pub(crate) mod validating;
