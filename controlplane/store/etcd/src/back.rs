//! Whether etcd has gone back: an older backup was restored under a running server.
//!
//! What the server has cached is then of a future that never was, and revisions that it has told
//! clients come a second time. Only a new start knows what is there.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use coracle_store::Revision;
use tokio::sync::watch;

/// The highest revision that a majority of etcd has told: by itself it never tells a lower one.
#[derive(Default)]
pub(crate) struct Highest {
    revision: AtomicU64,
    gone_back: watch::Sender<Option<Back>>,
}

/// From which revision to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Back {
    from: Revision,
    to: Revision,
}

impl fmt::Display for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(
            f,
            "etcd has gone back from revision {from} to {to}, as by restoring an older backup"
        )
    }
}

impl Highest {
    /// What it is before a request is sent.
    pub(crate) fn known(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Looks at the answer of a majority to a request that was sent when `known` was the highest.
    pub(crate) fn judge(&self, known: Revision, told: Revision) {
        self.revision.fetch_max(told.0, Ordering::AcqRel);
        if told >= known {
            return;
        }
        let back = Back {
            from: known,
            to: told,
        };
        self.gone_back.send_if_modified(|gone_back| {
            let is_first = gone_back.is_none();
            gone_back.get_or_insert(back);
            is_first
        });
    }

    /// That it has gone back, once it has.
    pub(crate) fn gone_back(&self) -> Option<Back> {
        *self.gone_back.borrow()
    }

    /// Waits until it has.
    pub(crate) async fn has_gone_back(&self) {
        let mut gone_back = self.gone_back.subscribe();
        // The sender is there as long as this is.
        let _ = gone_back.wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_who_was_further_before_the_request_has_gone_back() {
        let highest = Highest::default();
        let known = highest.known();
        highest.judge(known, Revision(5));
        // Two answers in the wrong order: the first request was sent before the second's answer.
        let known = highest.known();
        highest.judge(known, Revision(7));
        highest.judge(known, Revision(6));
        assert_eq!((highest.gone_back(), highest.known()), (None, Revision(7)));
        highest.judge(highest.known(), Revision(3));
        highest.has_gone_back().await;
        let said = highest.gone_back().map(|back| back.to_string());
        assert!(
            said.as_deref()
                .is_some_and(|said| said.contains("from revision 7 to 3")),
            "{said:?}"
        );
    }
}
