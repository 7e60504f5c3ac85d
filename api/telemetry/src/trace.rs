//! Spans along the way of a request and of a pod: who took how long within whom.
//!
//! | span | within | fields |
//! |---|---|---|
//! | `KubernetesAPI` | what asks, if that is in this process | `path`, `verb`, `resource`, `subresource`, `object`, `code` |
//! | `admission` | `KubernetesAPI` | `type`: `admit`, `validate` or `quota` |
//! | `commit` | `KubernetesAPI` | |
//! | `Scheduling`, `Binding` | | `pod`, `uid`; `node` |
//! | `syncPod`, `syncTerminatingPod` | | `pod`, `uid` |
//! | `RunPodSandbox` | `syncPod` | |
//! | `cgroup`, `shim`, `network` | `RunPodSandbox` | |
//! | `volumes`, `EnsureImageExists` | `syncPod` | |
//! | `PullImage` | `EnsureImageExists` | `image` |
//! | `CreateContainer`, `StartContainer` | `syncPod` | `container` |
//! | `PatchPodStatus` | | `pod`, `uid` |
//! | `probe` | | `pod`, `uid`, `container`, `type`, `outcome` |
//!
//! `pod` and `object` are `namespace/name`. All are made by [`span!`](crate::span): one target, one
//! level, so that one directive of the log's filter listens to all of them and to nothing else.
//! While nobody does, each costs the loads of two atomics: no field is computed. Nothing here keeps
//! or writes them: that is the subscriber's.
//!
//! Names are upstream's where it has one. Source: `WithTracing` in
//! `pkg/endpoints/filters/traces.go` of `k8s.io/apiserver`, `schedulePod` in
//! `pkg/scheduler/schedule_one.go`, `SyncPod` in `pkg/kubelet/kubelet.go`, and the verbs of
//! `k8s.io/cri-api`, at v1.37.

/// The target of every span.
pub const TARGET: &str = "coracle::trace";

/// Makes a span of [`TARGET`] at level debug: `span!("shim")`,
/// `span!("syncPod", pod = %reference, %uid)`.
///
/// The expressions of its fields are evaluated only if somebody listens.
#[macro_export]
macro_rules! span {
    ($name:literal $($fields:tt)*) => {
        $crate::tracing::debug_span!(target: $crate::trace::TARGET, $name $($fields)*)
    };
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tracing::{Metadata, Subscriber, span};

    use super::TARGET;

    /// Counts the spans that it is told of.
    struct Listener {
        listens: bool,
        spans: Arc<AtomicUsize>,
    }

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.listens && metadata.is_span() && metadata.target() == TARGET
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1 + self.spans.fetch_add(1, Ordering::Relaxed) as u64)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    /// How often the fields of a span were computed, and how many spans a listener has seen.
    fn made(listens: bool) -> (usize, usize) {
        let (computed, spans) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let make = || {
            let pod = || {
                computed.fetch_add(1, Ordering::Relaxed);
                "default/web"
            };
            let span = crate::span!("syncPod", pod = pod(), uid = tracing::field::Empty);
            let _entered = span.enter();
        };
        tracing::subscriber::with_default(
            Listener {
                listens,
                spans: Arc::clone(&spans),
            },
            make,
        );
        (computed.into_inner(), spans.load(Ordering::Relaxed))
    }

    #[test]
    fn a_span_costs_nothing_that_nobody_listens_to() {
        assert_eq!(made(false), (0, 0));
        assert_eq!(made(true), (1, 1));
    }
}
