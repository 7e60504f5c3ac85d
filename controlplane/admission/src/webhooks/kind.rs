//! The two kinds of webhooks.

/// Whether a webhook may change a write, or only refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It may send a patch.
    Mutating,
    /// It may not.
    Validating,
}
