//! What deleted keys were: a watch of deletions alone, beside the one of everything.
//!
//! etcd looks up what a key was before for each event of a watch that wants to know it, also where
//! the key has been written anew: with version 3.4 that takes it as long as the write. Here it is
//! wanted of deletions only, which a filter can say, and of a watch as a whole.

use std::{collections::HashMap, time::Duration};

use etcd_client::{EventType, KeyValue, WatchRequestSender, WatchResponse, WatchResponseStream};

use crate::error::{CallError, Cause};

/// Within what time deletions come here that the other watch has shown: both come from one member.
const LATE: Duration = Duration::from_secs(10);

/// The watch, and what it has shown that was not asked for yet.
pub(crate) struct Gone {
    responses: WatchResponseStream,
    /// Ends the watch when it is dropped.
    _sender: WatchRequestSender,
    url: String,
    /// By revision and key.
    seen: HashMap<(i64, Vec<u8>), KeyValue>,
    /// Every deletion up to here has been seen.
    seen_to: i64,
}

/// Why there is no more.
pub(crate) enum End {
    /// History has been compacted up to this revision.
    Compacted(i64),
    /// Anything else.
    Failed(CallError),
}

impl Gone {
    pub(crate) fn new(
        url: &str,
        sender: WatchRequestSender,
        responses: WatchResponseStream,
    ) -> Self {
        Self {
            responses,
            _sender: sender,
            url: url.to_owned(),
            seen: HashMap::new(),
            seen_to: 0,
        }
    }

    /// What was under the keys that are deleted in `response`, by revision and key. What had been
    /// compacted by then is not in it.
    ///
    /// # Errors
    /// The watch has ended, or does not come so far.
    pub(crate) async fn before(
        &mut self,
        response: &WatchResponse,
    ) -> Result<HashMap<(i64, Vec<u8>), KeyValue>, End> {
        let deletions = response
            .events()
            .iter()
            .filter(|event| event.event_type() == EventType::Delete);
        let newest = deletions
            .filter_map(|event| event.kv().map(KeyValue::mod_revision))
            .max();
        let Some(newest) = newest else {
            return Ok(HashMap::new());
        };
        while self.seen_to < newest {
            match tokio::time::timeout(LATE, self.responses.message()).await {
                Ok(Ok(Some(response))) => self.take(&response)?,
                Ok(Ok(None)) => return Err(self.lost("the watch of deletions ended")),
                Ok(Err(error)) => return Err(End::Failed(CallError::of(&self.url, &error))),
                Err(_) => return Err(End::Failed(CallError::new(&self.url, Cause::Silent(LATE)))),
            }
        }
        Ok(self
            .seen
            .extract_if(|(revision, _), _| *revision <= newest)
            .collect())
    }

    fn take(&mut self, response: &WatchResponse) -> Result<(), End> {
        if response.canceled() {
            return Err(match response.compact_revision() {
                0 => self.lost(response.cancel_reason()),
                oldest => End::Compacted(oldest),
            });
        }
        for event in response.events() {
            let Some(kv) = event.kv() else { continue };
            self.seen_to = self.seen_to.max(kv.mod_revision());
            if let Some(before) = event.prev_kv() {
                let key = (kv.mod_revision(), kv.key().to_vec());
                self.seen.insert(key, before.clone());
            }
        }
        Ok(())
    }

    fn lost(&self, why: &str) -> End {
        End::Failed(CallError::new(&self.url, Cause::Lost(why.to_owned())))
    }
}
