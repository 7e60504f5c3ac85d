//! What the proxy tells whoever writes Events of it.

use coracle_netfilter::engine::Refusal;

/// What others should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The kernel takes no rules of a Service; the others have theirs.
    Refused(Refusal),
    /// Some external addresses of a Service are left to who has them.
    Withheld(Refusal),
    /// The port at which load balancers ask for a Service is somebody else's.
    HealthCheckFailed {
        /// Whose, and why.
        refusal: Refusal,
        /// Which.
        port: u16,
    },
    /// No rules can be written at all.
    Failing {
        /// What was tried and what it answered.
        why: String,
    },
    /// The rules are written.
    Written {
        /// But for so many Services, which the kernel refuses.
        refused: usize,
    },
    /// Others had changed or removed rules of ours.
    Repaired,
}
