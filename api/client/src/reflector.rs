//! One kind of object as a list and what happens to it afterwards: over any number of broken
//! connections, without a gap.
//!
//! ```text
//! Unlisted --streamed or paged list--> Watching(revision) --stream ends, breaks--> Watching(revision)
//!     ^------------ the revision is too old (410) --------------'
//! ```
//! Beside kube's watcher, of which this is the simpler sister, it tells the revision that it has
//! come to, of lists and bookmarks as well: whoever has written something knows from it whether
//! that shows by now.
//!
//! Source: `k8s.io/client-go/tools/cache/reflector.go` at v1.37.

mod list_watch;

use std::{
    collections::VecDeque,
    fmt::{self, Debug},
    time::Duration,
};

use futures::StreamExt;
use kube::{Api, Resource, api::WatchEvent, core::Status};
use serde::de::DeserializeOwned;

pub use self::list_watch::Selection;
use self::list_watch::{CALL_LIMIT, Events, ListWatch};

/// How long nothing at all may be heard of a watch: longer than the server keeps it open.
const SILENCE: Duration = Duration::from_secs(295);
/// The annotation of the bookmark after what was there at the beginning.
const LISTED: &str = "k8s.io/initial-events-end";

/// What has happened.
#[derive(Debug)]
pub enum Event<K> {
    /// A list begins: what it has not when it is done is gone.
    Init,
    /// An object of the list.
    InitApply(K),
    /// The list is complete.
    InitDone,
    /// An object is new or has changed.
    Apply(K),
    /// An object is gone; as it was last.
    Delete(K),
    /// Everything up to this revision has been told. Follows each list.
    Progress(u64),
}

/// Why there is no next event; asked again, the reflector goes on where it was.
#[derive(Debug, thiserror::Error)]
pub enum ReflectorError {
    /// The list, or the beginning of a watch.
    #[error("{call}")]
    Call {
        /// Which.
        call: &'static str,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// The same, and nothing came back at all.
    #[error("{call}: no answer within {} s", CALL_LIMIT.as_secs())]
    Unanswered {
        /// Which.
        call: &'static str,
    },
    /// The server has said so within the stream.
    #[error("the watch was ended: {}", .0.message)]
    Told(Box<Status>),
    /// Nothing was heard for too long.
    #[error("the watch is silent")]
    Silent,
    /// It ended before anything came.
    #[error("the watch ended at once")]
    Empty,
    /// The server does not say at which revision its list is.
    #[error("a list without a resourceVersion")]
    NoRevision,
}

impl ReflectorError {
    /// The status code of an answer that refused the call.
    fn code(&self) -> Option<u16> {
        match self {
            Self::Call {
                source: kube::Error::Api(status),
                ..
            } => Some(status.code),
            _ => None,
        }
    }
}

impl<K> Debug for Reflector<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("selection", &self.source.selection)
            .finish_non_exhaustive()
    }
}

enum State<K> {
    Unlisted,
    /// A watch that begins with what is there.
    Streaming(Events<K>),
    Paging {
        next: Option<String>,
        page: VecDeque<K>,
        /// Of the list, once its last page is there.
        revision: Option<String>,
    },
    /// The list is told, its revision not yet.
    Listed(String, Option<Events<K>>),
    Watching {
        revision: String,
        /// Also whether anything came of it.
        events: Option<(Events<K>, bool)>,
    },
}

/// Lists and watches one kind of object.
pub struct Reflector<K> {
    source: ListWatch<K>,
    /// Whether the server streams lists; until it says no.
    streams: bool,
    state: State<K>,
}

impl<K> Reflector<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Begins with a list once it is asked.
    #[must_use]
    pub fn new(api: Api<K>, selection: Selection) -> Self {
        Self {
            source: ListWatch { api, selection },
            streams: true,
            state: State::Unlisted,
        }
    }

    /// The next event. Not cancel-safe.
    ///
    /// # Errors
    /// [`ReflectorError`]: wait, and ask again.
    pub async fn next(&mut self) -> Result<Event<K>, ReflectorError> {
        loop {
            // What fails before it has put another state here begins with a list.
            let (event, state) = match std::mem::replace(&mut self.state, State::Unlisted) {
                State::Unlisted => self.begin().await?,
                State::Streaming(events) => streamed(events).await?,
                State::Paging {
                    next,
                    mut page,
                    revision,
                } => match (page.pop_front(), revision) {
                    (Some(object), revision) => (
                        Some(Event::InitApply(object)),
                        State::Paging {
                            next,
                            page,
                            revision,
                        },
                    ),
                    (None, Some(revision)) => {
                        (Some(Event::InitDone), State::Listed(revision, None))
                    }
                    (None, None) => (None, self.page(next).await?),
                },
                State::Listed(revision, events) => {
                    let told = number(&revision).map(Event::Progress);
                    (
                        told,
                        State::Watching {
                            revision,
                            events: events.map(|events| (events, true)),
                        },
                    )
                }
                State::Watching {
                    revision,
                    events: None,
                } => (None, self.resume(revision).await?),
                State::Watching {
                    revision,
                    events: Some(events),
                } => self.watched(revision, events).await?,
            };
            self.state = state;
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    async fn begin(&mut self) -> Result<(Option<Event<K>>, State<K>), ReflectorError> {
        if !self.streams {
            return Ok((
                Some(Event::Init),
                State::Paging {
                    next: None,
                    page: VecDeque::new(),
                    revision: None,
                },
            ));
        }
        match self.source.watch_list().await {
            Ok(events) => Ok((Some(Event::Init), State::Streaming(events))),
            // It does not know `sendInitialEvents`.
            Err(failure) if matches!(failure.code(), Some(400 | 422)) => {
                tracing::debug!(
                    kind = std::any::type_name::<K>(),
                    "no streamed lists, listing by pages"
                );
                self.streams = false;
                Ok((None, State::Unlisted))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn page(&mut self, next: Option<String>) -> Result<State<K>, ReflectorError> {
        let list = self.source.page(next).await?;
        let next = list.metadata.continue_.filter(|token| !token.is_empty());
        let revision = list.metadata.resource_version.filter(|_| next.is_none());
        if next.is_none() && revision.as_ref().is_none_or(String::is_empty) {
            return Err(ReflectorError::NoRevision);
        }
        Ok(State::Paging {
            next,
            page: list.items.into(),
            revision,
        })
    }

    /// Watches from `revision` on.
    async fn resume(&mut self, revision: String) -> Result<State<K>, ReflectorError> {
        match self.source.watch(&revision).await {
            Ok(events) => Ok(State::Watching {
                revision,
                events: Some((events, false)),
            }),
            Err(failure) => {
                // What is older than the server remembers is listed anew.
                if failure.code() != Some(410) {
                    self.state = State::Watching {
                        revision,
                        events: None,
                    };
                }
                Err(failure)
            }
        }
    }

    async fn watched(
        &mut self,
        revision: String,
        (mut events, came): (Events<K>, bool),
    ) -> Result<(Option<Event<K>>, State<K>), ReflectorError> {
        let failure = match tokio::time::timeout(SILENCE, events.next()).await {
            Ok(Some(Ok(event))) => {
                let (event, at) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        let at = object.meta().resource_version.clone();
                        (Event::Apply(object), at)
                    }
                    WatchEvent::Deleted(object) => {
                        let at = object.meta().resource_version.clone();
                        (Event::Delete(object), at)
                    }
                    WatchEvent::Bookmark(mark) => {
                        let revision = mark.metadata.resource_version;
                        let told = number(&revision).map(Event::Progress);
                        return Ok((
                            told,
                            State::Watching {
                                revision,
                                events: Some((events, true)),
                            },
                        ));
                    }
                    WatchEvent::Error(status) => {
                        if status.code != 410 {
                            self.state = State::Watching {
                                revision,
                                events: None,
                            };
                        }
                        return Err(ReflectorError::Told(status));
                    }
                };
                let revision = at
                    .filter(|at| !at.is_empty())
                    .ok_or(ReflectorError::NoRevision)?;
                return Ok((
                    Some(event),
                    State::Watching {
                        revision,
                        events: Some((events, true)),
                    },
                ));
            }
            // Its time is up.
            Ok(None) if came => {
                return Ok((
                    None,
                    State::Watching {
                        revision,
                        events: None,
                    },
                ));
            }
            Ok(None) => ReflectorError::Empty,
            Ok(Some(Err(source))) => ReflectorError::Call {
                call: "read the watch",
                source,
            },
            Err(_) => ReflectorError::Silent,
        };
        self.state = State::Watching {
            revision,
            events: None,
        };
        Err(failure)
    }
}

/// What a watch brings that began without a revision.
async fn streamed<K>(
    mut events: Events<K>,
) -> Result<(Option<Event<K>>, State<K>), ReflectorError> {
    match tokio::time::timeout(SILENCE, events.next()).await {
        Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
            Ok((Some(Event::InitApply(object)), State::Streaming(events)))
        }
        Ok(Some(Ok(WatchEvent::Bookmark(mark))))
            if mark.metadata.annotations.contains_key(LISTED) =>
        {
            Ok((
                Some(Event::InitDone),
                State::Listed(mark.metadata.resource_version, Some(events)),
            ))
        }
        Ok(Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_)))) => {
            Ok((None, State::Streaming(events)))
        }
        Ok(Some(Ok(WatchEvent::Error(status)))) => Err(ReflectorError::Told(status)),
        Ok(Some(Err(source))) => Err(ReflectorError::Call {
            call: "read the list",
            source,
        }),
        Ok(None) => Err(ReflectorError::Empty),
        Err(_) => Err(ReflectorError::Silent),
    }
}

/// A revision as a number: they are compared, as KEP-5504 allows.
pub(crate) fn number(revision: &str) -> Option<u64> {
    revision.parse().ok()
}

#[cfg(test)]
mod tests;
