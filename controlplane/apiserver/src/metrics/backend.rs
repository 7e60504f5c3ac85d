//! A store whose times are taken.

use std::{fs::File, sync::Arc, time::Instant};

use coracle_store::{
    Backend, KeyValue, RangeRequest, RangeResponse, Revision, StoreError, Txn, TxnOutcome,
    WatchStream,
};
use coracle_telemetry::span;
use tracing::Instrument as _;

use super::{Operation, Times};
use crate::slow::{Step, Timing};

pub(super) struct Metered {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) times: Times<Operation>,
}

impl Metered {
    async fn timed<T>(&self, operation: &'static str, work: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let outcome = work.await;
        self.times
            .get_or_create(&Operation { operation })
            .observe(started.elapsed().as_secs_f64());
        outcome
    }
}

#[async_trait::async_trait]
impl Backend for Metered {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        let _timing = Timing::of(Step::Commit);
        self.timed("txn", self.backend.txn(txn).instrument(span!("commit")))
            .await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let _timing = Timing::of(Step::Read);
        self.timed("get", self.backend.get(key)).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        let _timing = Timing::of(Step::Read);
        self.timed("list", self.backend.range(request)).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        self.backend.watch(prefix, from).await
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        self.timed("compact", self.backend.compact(to)).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.backend.current_revision().await
    }

    fn known_revision(&self) -> Option<Revision> {
        self.backend.known_revision()
    }

    async fn hasten(&self, revision: Revision) {
        self.backend.hasten(revision).await;
    }

    fn is_full(&self) -> bool {
        self.backend.is_full()
    }

    fn is_shared(&self) -> bool {
        self.backend.is_shared()
    }

    async fn backup(&self) -> Result<File, StoreError> {
        self.timed("backup", self.backend.backup()).await
    }

    fn failure(&self) -> Option<String> {
        self.backend.failure()
    }

    async fn closed(&self) {
        self.backend.closed().await;
    }
}
