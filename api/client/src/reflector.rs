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
//! All of it but the last step, which reads the object, is made once for all kinds, from JSON.
//!
//! Source: `k8s.io/client-go/tools/cache/reflector.go` at v1.37.

mod list_watch;
mod raw;

use std::{
    fmt::{self, Debug},
    marker::PhantomData,
};

use kube::{Api, Resource, core::Status};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use self::list_watch::Selection;
use self::{
    list_watch::{CALL_LIMIT, ListWatch},
    raw::{RawEvent, RawReflector},
};

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

/// Lists and watches one kind of object.
pub struct Reflector<K> {
    raw: RawReflector,
    of: PhantomData<fn() -> K>,
}

impl<K: Resource + DeserializeOwned> Reflector<K> {
    /// Begins with a list once it is asked.
    #[must_use]
    pub fn new(api: Api<K>, selection: Selection) -> Self {
        let url = api.resource_url().to_owned();
        Self {
            raw: RawReflector::new(ListWatch {
                client: api.into_client(),
                url,
                selection,
            }),
            of: PhantomData,
        }
    }

    /// The next event. Not cancel-safe.
    ///
    /// # Errors
    /// [`ReflectorError`]: wait, and ask again.
    pub async fn next(&mut self) -> Result<Event<K>, ReflectorError> {
        let event = self.raw.next().await?;
        self.read(event)
    }

    fn read(&mut self, event: RawEvent) -> Result<Event<K>, ReflectorError> {
        Ok(match event {
            Event::Init => Event::Init,
            Event::InitApply(json) => Event::InitApply(self.object(&json)?),
            Event::InitDone => Event::InitDone,
            Event::Apply(json) => Event::Apply(self.change(&json)?),
            Event::Delete(json) => Event::Delete(self.change(&json)?),
            Event::Progress(revision) => Event::Progress(revision),
        })
    }

    fn change(&mut self, json: &RawValue) -> Result<K, ReflectorError> {
        let object = self.object(json)?;
        self.raw
            .came_to(object.meta().resource_version.as_deref())?;
        Ok(object)
    }

    fn object(&mut self, json: &RawValue) -> Result<K, ReflectorError> {
        serde_json::from_str(json.get()).map_err(|error| {
            self.raw.step_back();
            ReflectorError::Call {
                call: "read the object",
                source: kube::Error::SerdeError(error),
            }
        })
    }
}

impl<K> Debug for Reflector<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("selection", self.raw.selection())
            .finish_non_exhaustive()
    }
}

/// A revision as a number: they are compared, as KEP-5504 allows.
pub(crate) fn number(revision: &str) -> Option<u64> {
    revision.parse().ok()
}

#[cfg(test)]
mod tests;
