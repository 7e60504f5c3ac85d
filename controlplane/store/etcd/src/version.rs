//! Which etcd a member is, as far as it matters.

/// A version of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

/// The oldest that has what is used here.
pub(crate) const OLDEST: Version = Version(3, 4, 0);

impl Version {
    /// Of `3.5.13` or `3.6.0-rc.1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(['.', '-', '+']);
        let mut next = || parts.next()?.parse().ok();
        Some(Self(next()?, next()?, next()?))
    }

    /// Whether the answer to a request for progress can be believed. Older ones may tell of a
    /// revision before they have sent its events.
    ///
    /// Source: `k8s.io/apiserver/pkg/storage/feature/feature_support_checker.go`,
    /// `RequestWatchProgress`.
    pub(crate) fn tells_progress(self) -> bool {
        match self {
            Self(3, 4, patch) => patch >= 31,
            Self(3, 5, patch) => patch >= 13,
            newer => newer > Self(3, 5, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_believed_where_it_was_mended() {
        for (text, expected) in [
            ("3.4.23", Some(false)),
            ("3.4.31", Some(true)),
            ("3.5.12", Some(false)),
            ("3.5.13", Some(true)),
            ("3.6.0-rc.1", Some(true)),
            ("4.0.0", Some(true)),
            ("3.3.9", Some(false)),
            ("three", None),
        ] {
            let found = Version::parse(text).map(Version::tells_progress);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn versions_have_an_order() {
        let old = Version::parse("3.3.27").expect("a version");
        assert!(old < OLDEST);
    }
}
