//! Why something of a pod is not as it was asked for, in the two fields in which every status of
//! the API says it.

/// `reason`, for machines, and `message`, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusReason {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl StatusReason {
    pub(crate) fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }
}
