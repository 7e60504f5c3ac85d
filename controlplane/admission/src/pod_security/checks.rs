//! What a pod may not say of itself, rule by rule.
//!
//! | module | about |
//! |---|---|
//! | [`host`] | what it shares with its node |
//! | [`volumes`] | where its files come from |
//! | [`privileges`] | what its processes may do |
//! | [`confinement`] | what the kernel keeps from them |
//!
//! Each looks at a pod and says what it has against it, in upstream's words.

pub(super) mod confinement;
pub(super) mod host;
pub(super) mod privileges;
pub(super) mod volumes;
