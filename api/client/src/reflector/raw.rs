//! What a [`Reflector`](super::Reflector) does before it knows what an object is: made once for all
//! kinds.

use std::{collections::VecDeque, time::Duration};

use futures::StreamExt;
use serde_json::value::RawValue;

use super::{
    Event, ReflectorError, Selection,
    list_watch::{Events, ListWatch, WatchEvent},
    number,
};

/// How long nothing at all may be heard of a watch: longer than the server keeps it open.
const SILENCE: Duration = Duration::from_secs(295);
/// The annotation of the bookmark after what was there at the beginning.
pub(super) const LISTED: &str = "k8s.io/initial-events-end";

/// An event with the JSON of the object.
pub(super) type RawEvent = Event<Box<RawValue>>;

enum State {
    Unlisted,
    /// A watch that begins with what is there.
    Streaming(Events),
    Paging {
        next: Option<String>,
        page: VecDeque<Box<RawValue>>,
        /// Of the list, once its last page is there.
        revision: Option<String>,
    },
    /// The list is told, its revision not yet.
    Listed(String, Option<Events>),
    Watching {
        revision: String,
        /// Also whether anything came of it.
        events: Option<(Events, bool)>,
    },
}

/// Lists and watches objects of some kind.
pub(super) struct RawReflector {
    source: ListWatch,
    /// Whether the server streams lists; until it says no.
    streams: bool,
    state: State,
}

impl RawReflector {
    pub(super) fn new(source: ListWatch) -> Self {
        Self {
            source,
            streams: true,
            state: State::Unlisted,
        }
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.source.selection
    }

    /// The object of the last event was of this revision.
    pub(super) fn came_to(&mut self, at: Option<&str>) -> Result<(), ReflectorError> {
        match (&mut self.state, at.filter(|at| !at.is_empty())) {
            (State::Watching { revision, .. }, Some(at)) => at.clone_into(revision),
            (_, Some(_)) => {}
            (state, None) => {
                *state = State::Unlisted;
                return Err(ReflectorError::NoRevision);
            }
        }
        Ok(())
    }

    /// The object of the last event cannot be read: it is asked for again.
    pub(super) fn step_back(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Unlisted) {
            State::Watching { revision, .. } => State::Watching {
                revision,
                events: None,
            },
            _ => State::Unlisted,
        };
    }

    /// The next event. Not cancel-safe.
    ///
    /// # Errors
    /// [`ReflectorError`]: wait, and ask again.
    pub(super) async fn next(&mut self) -> Result<RawEvent, ReflectorError> {
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

    async fn begin(&mut self) -> Result<(Option<RawEvent>, State), ReflectorError> {
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
                tracing::debug!(url = self.source.url, "no streamed lists, listing by pages");
                self.streams = false;
                Ok((None, State::Unlisted))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn page(&mut self, next: Option<String>) -> Result<State, ReflectorError> {
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
    async fn resume(&mut self, revision: String) -> Result<State, ReflectorError> {
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
        (mut events, came): (Events, bool),
    ) -> Result<(Option<RawEvent>, State), ReflectorError> {
        let failure = match tokio::time::timeout(SILENCE, events.next()).await {
            Ok(Some(Ok(event))) => {
                let (event, revision) = match event {
                    WatchEvent::Applied(object) => (Some(Event::Apply(object)), revision),
                    WatchEvent::Deleted(object) => (Some(Event::Delete(object)), revision),
                    WatchEvent::Bookmark(mark) => {
                        let told = number(&mark.resource_version).map(Event::Progress);
                        (told, mark.resource_version)
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
                return Ok((
                    event,
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
async fn streamed(mut events: Events) -> Result<(Option<RawEvent>, State), ReflectorError> {
    match tokio::time::timeout(SILENCE, events.next()).await {
        Ok(Some(Ok(WatchEvent::Applied(object)))) => {
            Ok((Some(Event::InitApply(object)), State::Streaming(events)))
        }
        Ok(Some(Ok(WatchEvent::Bookmark(mark)))) if mark.annotations.contains_key(LISTED) => Ok((
            Some(Event::InitDone),
            State::Listed(mark.resource_version, Some(events)),
        )),
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
