//! What every kind with pods in it shares: defaults and checks of pod specs and pod templates.
//!
//! | module | does |
//! |---|---|
//! | [`defaults`], `volume_defaults` | fill in what a spec leaves out |
//! | [`validate`] | checks a whole spec or template, by way of the others |
//! | `containers`, `env`, `probes`, `resources`, `restart` | check containers |
//! | `pod_resources`, `resource_claims`, `os` | check a pod's own resources, its claims, its operating system |
//! | [`creation`] | what holds of new pods alone |
//! | [`label_keys`] | labels of a pod that its own selectors are to have |
//! | [`mirror`] | checks the annotation of mirror pods |
//! | [`app_armor`] | annotations that became fields |
//! | [`warnings`], `overlaps` | what is allowed but odd |
//! | `volumes`, `security`, `scheduling` | check what their names say |

pub mod app_armor;
mod containers;
pub mod creation;
pub mod defaults;
mod env;
pub mod label_keys;
pub mod mirror;
mod os;
mod overlaps;
mod pod_resources;
mod probes;
mod resource_claims;
pub mod resources;
mod restart;
pub mod scheduling;
mod security;
pub mod validate;
mod volume_defaults;
mod volumes;
pub mod warnings;
