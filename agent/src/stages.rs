//! Where the time of a pod's start goes: one debug line a stage, read by `make bench` and by whoever asks with `-v`.

use std::time::Instant;

use crate::runtime::PodRef;

/// Does the work and says how long it took.
pub(crate) async fn timed<T>(stage: &'static str, pod: &PodRef, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let result = work.await;
    let elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(target: "coracle::stages", stage, namespace = %pod.namespace, pod = %pod.name, elapsed_us);
    result
}
