//! A watch: everything under the prefix, a batch a revision, in a bounded queue.
//!
//! The whole prefix is watched whatever was asked for: what lies outside says how far the store is.
//! History waits for its reader. A reader who does not keep up with what happens now is cut off,
//! and so is a watch on a member that is not used any more; both go on from where they were.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use coracle_store::{Event, EventBatch, KeyValue, Revision, StoreError, WatchStream};
use coracle_telemetry::spawn;
use etcd_client::{
    EventType, WatchClient, WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse,
    WatchResponseStream,
};
use futures::StreamExt as _;
use tokio::sync::{mpsc, watch};

use crate::{
    error::{CallError, Cause, read_failed},
    follow::Follower,
    gone::{End, Gone},
    keys::Keys,
    members::{Members, Repeat},
};

/// Revisions a watcher may lag behind.
const QUEUE: usize = 1024;
/// Within what time a watch of the past begins, or is told that there is no such past.
const TOLD: std::time::Duration = std::time::Duration::from_secs(3);

/// A watch that etcd has made.
pub(crate) struct Opened {
    number: usize,
    sender: WatchRequestSender,
    responses: WatchResponseStream,
    gone: Gone,
    /// How far the member was.
    pub(crate) revision: Revision,
}

/// Opens a watch of all events from `start` on.
pub(crate) async fn open(keys: &Keys, members: &Members, start: i64) -> Result<Opened, CallError> {
    let (first, end) = keys.everything();
    let (number, (all, gone)) = members
        .call_one(Repeat::Harmless, |member| {
            let (mut watch, first) = (member.watch.clone(), first.clone());
            let mut options = WatchOptions::new()
                .with_range(&*end)
                .with_start_revision(start);
            let gone = options
                .clone()
                .with_filters([WatchFilterType::NoPut])
                .with_prev_key();
            if member.tells_progress() {
                options = options.with_progress_notify();
            }
            async move {
                let all = begin(&mut watch, first.clone(), options).await?;
                Ok((all, begin(&mut watch, first, gone).await?))
            }
        })
        .await?;
    let url = &members.all()[number].url;
    let ((sender, responses, created), (of_gone, deletions, also)) = (all, gone);
    let made = made(url, created)?;
    self::made(url, also)?;
    Ok(Opened {
        number,
        sender,
        responses,
        gone: Gone::new(url, of_gone, deletions),
        revision: head(keys, &made),
    })
}

type Begun = (
    WatchRequestSender,
    WatchResponseStream,
    Option<WatchResponse>,
);

async fn begin(
    client: &mut WatchClient,
    first: Vec<u8>,
    options: WatchOptions,
) -> Result<Begun, etcd_client::Error> {
    let (sender, mut responses) = client.watch(first, Some(options)).await?.split();
    let created = responses.message().await?;
    Ok((sender, responses, created))
}

/// What the member says of a watch that it was to make.
fn made(url: &str, created: Option<WatchResponse>) -> Result<WatchResponse, CallError> {
    match created {
        Some(created) if created.created() && !created.canceled() => Ok(created),
        Some(refused) => Err(CallError::new(
            url,
            Cause::Forbidden(refused.cancel_reason().to_owned()),
        )),
        None => Err(CallError::new(
            url,
            Cause::Lost("it made no watch".to_owned()),
        )),
    }
}

impl Opened {
    /// Whether the member's word on how far it is can be taken.
    pub(crate) fn tells_progress(&self, members: &Members) -> bool {
        members.all()[self.number].tells_progress()
    }

    /// The oldest revision there is, of a watch that begins before it; `None` if it does not.
    pub(crate) async fn oldest(mut self, keys: &Keys) -> Option<Revision> {
        let told = async {
            while let Ok(Some(response)) = self.responses.message().await {
                if response.compact_revision() > 0 {
                    return Some(keys.revision(response.compact_revision()));
                }
                if !response.events().is_empty() {
                    return None;
                }
            }
            None
        };
        tokio::time::timeout(TOLD, told).await.ok().flatten()
    }
}

fn head(keys: &Keys, response: &WatchResponse) -> Revision {
    keys.revision(
        response
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision),
    )
}

/// Follows a watch that was opened.
pub(crate) struct Following {
    pub(crate) keys: Keys,
    pub(crate) members: Arc<Members>,
    pub(crate) follower: Arc<Follower>,
    /// Of the store's keys.
    pub(crate) prefix: String,
    /// Events up to here are not wanted.
    pub(crate) from: Revision,
    /// Up to here it is history.
    pub(crate) history: Revision,
}

impl Following {
    /// Starts to follow; the stream ends it.
    pub(crate) fn stream(self, opened: Opened) -> WatchStream {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (why, ended) = tokio::sync::oneshot::channel();
        spawn("follow etcd", async move {
            if let Some(error) = self.run(opened, sender).await {
                // After the queue was closed: what is in it comes first.
                let _nobody_reads = why.send(error);
            }
        });
        let live = futures::stream::unfold(receiver, |mut receiver| async move {
            let batch = receiver.recv().await?;
            Some((Ok(batch), receiver))
        });
        let end = futures::stream::once(ended).filter_map(|why| async move { why.ok().map(Err) });
        live.chain(end).boxed()
    }

    /// Why it has ended; `None` if nobody reads any more.
    async fn run(mut self, opened: Opened, queue: mpsc::Sender<EventBatch>) -> Option<StoreError> {
        let Opened {
            number,
            mut sender,
            mut responses,
            mut gone,
            ..
        } = opened;
        let mut moves = self.members.moves();
        loop {
            let response = tokio::select! {
                () = queue.closed() => return None,
                () = moved(&mut moves, number) => return Some(self.lost(number, "another member is used now")),
                () = asked(&self.follower) => match sender.request_progress().await {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                response = responses.message() => response,
            };
            let response = match response {
                Ok(Some(response)) => response,
                Ok(None) => return Some(self.lost(number, "the watch ended")),
                Err(error) => {
                    let error = CallError::of(&self.members.all()[number].url, &error);
                    self.members.leave(number, &error);
                    return Some(read_failed(error));
                }
            };
            if let Err(ended) = self.deliver(&response, number, &mut gone, &queue).await {
                return ended;
            }
        }
    }

    fn lost(&self, number: usize, why: &str) -> StoreError {
        let url = &self.members.all()[number].url;
        read_failed(CallError::new(url, Cause::Lost(why.to_owned())))
    }

    async fn deliver(
        &mut self,
        response: &WatchResponse,
        number: usize,
        gone: &mut Gone,
        queue: &mpsc::Sender<EventBatch>,
    ) -> Result<(), Option<StoreError>> {
        if response.canceled() {
            return Err(Some(match response.compact_revision() {
                0 => self.lost(number, response.cancel_reason()),
                oldest => self.compacted(oldest),
            }));
        }
        if response.events().is_empty() {
            if self.follower.ask.is_some() {
                self.progress(head(&self.keys, response), queue);
            }
            return Ok(());
        }
        let before = gone.before(response).await.map_err(|end| {
            Some(match end {
                End::Compacted(oldest) => self.compacted(oldest),
                End::Failed(error) => {
                    self.members.leave(number, &error);
                    read_failed(error)
                }
            })
        })?;
        let batches = batches(&self.keys, &self.prefix, self.from, response, &before);
        for batch in batches.map_err(Some)? {
            let reached = batch.revision;
            if reached <= self.history {
                queue.send(batch).await.map_err(|_| None)?;
            } else if batch.events.is_empty() {
                self.progress(reached, queue);
                continue;
            } else {
                queue.try_send(batch).map_err(|error| match error {
                    mpsc::error::TrySendError::Full(_) => Some(StoreError::WatcherTooSlow),
                    mpsc::error::TrySendError::Closed(_) => None,
                })?;
            }
            self.reached(reached);
        }
        Ok(())
    }

    fn compacted(&self, oldest: i64) -> StoreError {
        StoreError::Compacted {
            asked: self.from,
            oldest: self.keys.revision(oldest),
        }
    }

    /// Nothing happened up to `revision`.
    fn progress(&mut self, revision: Revision, queue: &mpsc::Sender<EventBatch>) {
        if revision <= self.from {
            return;
        }
        let batch = EventBatch {
            revision,
            events: Vec::new(),
        };
        // If there is no place, a later batch says so.
        if queue.try_send(batch).is_ok() {
            self.reached(revision);
        }
    }

    fn reached(&mut self, revision: Revision) {
        self.from = revision;
        self.follower.reach(revision);
    }
}

async fn moved(moves: &mut watch::Receiver<usize>, number: usize) {
    if moves.wait_for(|current| *current != number).await.is_err() {
        std::future::pending().await
    }
}

async fn asked(follower: &Follower) {
    match &follower.ask {
        Some(ask) => ask.notified().await,
        None => std::future::pending().await,
    }
}

/// What deleted keys were, by the revision of their deletion.
type Before = HashMap<(i64, Vec<u8>), etcd_client::KeyValue>;

/// The events of a response by revision: all of one are in one response. Those that are not asked
/// for leave an empty batch.
fn batches(
    keys: &Keys,
    prefix: &str,
    from: Revision,
    response: &WatchResponse,
    before: &Before,
) -> Result<Vec<EventBatch>, StoreError> {
    let mut batches: Vec<EventBatch> = Vec::new();
    for event in response.events() {
        let Some(kv) = event.kv() else { continue };
        let at = keys.revision(kv.mod_revision());
        if at <= from {
            continue;
        }
        if batches.last().is_none_or(|batch| batch.revision != at) {
            batches.push(EventBatch {
                revision: at,
                events: Vec::new(),
            });
        }
        let own = keys.own(kv.key()).filter(|key| key.starts_with(prefix));
        if let (Some(key), Some(batch)) = (own, batches.last_mut()) {
            batch.events.push(translated(keys, key, at, event, before)?);
        }
    }
    Ok(batches)
}

fn translated(
    keys: &Keys,
    key: &str,
    at: Revision,
    event: &etcd_client::Event,
    before: &Before,
) -> Result<Event, StoreError> {
    let deleted = event.event_type() == EventType::Delete;
    let state = match event.kv() {
        Some(gone) if deleted => before.get(&(gone.mod_revision(), gone.key().to_vec())),
        state => state,
    };
    let Some(state) = state else {
        // What the key was is compacted away, and so is the revision before.
        return Err(StoreError::Compacted {
            asked: Revision(at.0.saturating_sub(1)),
            oldest: at,
        });
    };
    Ok(Event {
        kv: KeyValue {
            key: key.into(),
            value: Bytes::copy_from_slice(state.value()),
            create_revision: keys.revision(state.create_revision()),
            mod_revision: at,
        },
        deleted,
    })
}
