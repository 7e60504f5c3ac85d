//! What a plugin answers: a code and, if it is no yes, the reasons.
//!
//! Source: `Status` and `Code` in `k8s.io/kube-scheduler/framework/interface.go` at v1.37.

use std::{cmp::Ordering, error::Error, fmt, sync::Arc, time::Duration};

use super::plugin_name::PluginName;

/// Why a node cannot take a pod, in upstream's words. Made for nodes that cannot, and shared by
/// them: most are constants, and one that has to be put together is put together once a pod.
#[derive(Debug, Clone)]
pub(crate) enum Reason {
    Constant(&'static str),
    Shared(Arc<str>),
}

impl Reason {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Constant(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self::Constant(text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Reason {}

impl PartialOrd for Reason {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Reason {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The sort of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Yes, or done.
    Success,
    /// The plugin has nothing to say about this pod: it is not asked at the point that belongs to
    /// this one.
    Skip,
    /// Permit alone: yes, but not before somebody says so, for this long.
    Wait(Duration),
    /// No, as things are. Pods that end may change that.
    Unschedulable,
    /// No, whichever pods end.
    UnschedulableAndUnresolvable,
    /// The plugin has failed.
    Error,
}

/// A code, the plugin that gave it, and its reasons.
#[derive(Debug)]
pub(crate) struct Status {
    code: Code,
    plugin: Option<PluginName>,
    reasons: Vec<Reason>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Status {
    pub(crate) const SUCCESS: Self = Self::of(Code::Success);
    pub(crate) const SKIP: Self = Self::of(Code::Skip);

    const fn of(code: Code) -> Self {
        Self {
            code,
            plugin: None,
            reasons: Vec::new(),
            source: None,
        }
    }

    /// Not before the pod is allowed, and for `timeout` at most.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no plugin of the default profile holds pods back")
    )]
    pub(crate) fn wait(timeout: Duration) -> Self {
        Self::of(Code::Wait(timeout))
    }

    pub(crate) fn unschedulable(reasons: Vec<Reason>) -> Self {
        Self {
            reasons,
            ..Self::of(Code::Unschedulable)
        }
    }

    pub(crate) fn unresolvable(reasons: Vec<Reason>) -> Self {
        Self {
            reasons,
            ..Self::of(Code::UnschedulableAndUnresolvable)
        }
    }

    /// The plugin has failed at `reason`.
    pub(crate) fn error(reason: impl Into<Reason>) -> Self {
        Self {
            reasons: vec![reason.into()],
            ..Self::of(Code::Error)
        }
    }

    /// The plugin has failed with `source`, whose text is the reason.
    pub(crate) fn failed(source: impl Error + Send + Sync + 'static) -> Self {
        let reasons = vec![source.to_string().into()];
        Self {
            reasons,
            source: Some(Box::new(source)),
            ..Self::of(Code::Error)
        }
    }

    /// The same, said by `plugin`.
    #[must_use]
    pub(crate) fn by(mut self, plugin: PluginName) -> Self {
        self.plugin = Some(plugin);
        self
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    pub(crate) fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// Whether it is a no, not a failure.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self.code,
            Code::Unschedulable | Code::UnschedulableAndUnresolvable
        )
    }

    /// Who has said so; nobody in a success.
    pub(crate) fn plugin(&self) -> Option<PluginName> {
        self.plugin
    }

    pub(crate) fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// The error of a plugin that has failed with one.
    pub(crate) fn source(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// All reasons in one line.
    pub(crate) fn message(&self) -> String {
        self.reasons
            .iter()
            .map(Reason::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }
}
