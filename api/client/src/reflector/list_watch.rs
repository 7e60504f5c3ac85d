//! The questions of a reflector to the server, each with a limit to the time until its answer
//! begins.
//!
//! The answers are JSON of which only the frame is read: nothing here is compiled anew for each
//! kind.
//!
//! Source: `ListWatch` of `k8s.io/client-go/tools/cache/listwatch.go`, `Client::request_events` of
//! kube-client 5.

use std::{error::Error, future::Future, io, pin::Pin, time::Duration};

use futures::{AsyncBufReadExt, Stream, StreamExt};
use http::{HeaderValue, Request, header::ACCEPT_ENCODING};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::{
        Status,
        watch::{Bookmark, BookmarkMeta},
    },
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ReflectorError;

/// Objects in one page of a list, where the server has no streamed ones.
const PAGE: u32 = 500;
/// How long the server keeps a watch open.
const WATCH_SECONDS: u32 = 290;
/// How long the server may think before it answers: longer than it lets any request wait in a
/// queue.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(60);

/// What a watch brings.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent, kube::Error>> + Send>>;

/// An event of a watch.
pub(super) enum WatchEvent {
    /// An object is new or has changed.
    Applied(Box<RawValue>),
    Deleted(Box<RawValue>),
    Bookmark(BookmarkMeta),
    Error(Box<Status>),
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    r#type: EventType,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) metadata: ListMeta,
    pub(super) items: Vec<Box<RawValue>>,
}

/// Which objects of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// By labels; all if empty.
    pub labels: String,
    /// By fields, such as `spec.nodeName=n1`; all if empty.
    pub fields: String,
}

impl Selection {
    /// Every object.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Those with these fields.
    #[must_use]
    pub fn fields(fields: impl Into<String>) -> Self {
        Self {
            fields: fields.into(),
            ..Self::default()
        }
    }

    /// Those with these labels.
    #[must_use]
    pub fn labels(labels: impl Into<String>) -> Self {
        Self {
            labels: labels.into(),
            ..Self::default()
        }
    }

    fn watch(&self) -> WatchParams {
        WatchParams {
            label_selector: given(&self.labels),
            field_selector: given(&self.fields),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        }
    }

    fn page(&self, continue_token: Option<String>) -> ListParams {
        ListParams {
            label_selector: given(&self.labels),
            field_selector: given(&self.fields),
            limit: Some(PAGE),
            continue_token,
            ..ListParams::default()
        }
    }
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Lists and watches some objects of a kind.
pub(super) struct ListWatch {
    pub(super) client: Client,
    /// Of the collection.
    pub(super) url: String,
    pub(super) selection: Selection,
}

impl ListWatch {
    /// A watch that begins with what there is.
    pub(super) async fn watch_list(&self) -> Result<Events, ReflectorError> {
        let params = WatchParams {
            send_initial_events: true,
            ..self.selection.watch()
        };
        within("watch from the beginning", self.events(&params, "0")).await
    }

    /// What has happened since a revision, and what happens.
    pub(super) async fn watch(&self, revision: &str) -> Result<Events, ReflectorError> {
        within("watch", self.events(&self.selection.watch(), revision)).await
    }

    /// A page of what there is: the first, or the one that a token of the page before names.
    pub(super) async fn page(
        &self,
        continue_token: Option<String>,
    ) -> Result<Page, ReflectorError> {
        let params = self.selection.page(continue_token);
        let page = async {
            let request = kube::core::Request::new(&self.url).list(&params);
            let request = request.map_err(kube::Error::BuildRequest)?;
            let text = self.client.request_text(request).await?;
            serde_json::from_str(&text).map_err(kube::Error::SerdeError)
        };
        within("list", page).await
    }

    async fn events(&self, params: &WatchParams, revision: &str) -> kube::Result<Events> {
        let request = kube::core::Request::new(&self.url).watch(params, revision);
        let mut request: Request<Vec<u8>> = request.map_err(kube::Error::BuildRequest)?;
        // A server may compress each event on its own, of which kube reads the first.
        let plain = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, plain);
        let lines = self.client.request_stream(request).await?.lines();
        Ok(Box::pin(lines.filter_map(async |line| event(line))))
    }
}

/// What a line of a watch says; nothing if the connection broke within it.
fn event(line: io::Result<String>) -> Option<kube::Result<WatchEvent>> {
    let line = match line {
        Ok(line) => line,
        Err(error) if is_cut_off(&error) => return None,
        Err(error) => return Some(Err(kube::Error::ReadEvents(error))),
    };
    match read(&line) {
        Ok(event) => Some(Ok(event)),
        Err(error) if error.is_eof() => None,
        Err(error) => Some(Err(match serde_json::from_str::<Status>(&line) {
            Ok(status) => kube::Error::Api(Box::new(status)),
            Err(_) => kube::Error::SerdeError(error),
        })),
    }
}

fn read(line: &str) -> serde_json::Result<WatchEvent> {
    let Line { r#type, object } = serde_json::from_str(line)?;
    Ok(match r#type {
        EventType::Added | EventType::Modified => WatchEvent::Applied(object.to_owned()),
        EventType::Deleted => WatchEvent::Deleted(object.to_owned()),
        EventType::Bookmark => {
            let mark: Bookmark = serde_json::from_str(object.get())?;
            WatchEvent::Bookmark(mark.metadata)
        }
        EventType::Error => WatchEvent::Error(serde_json::from_str(object.get())?),
    })
}

/// Whether the server, or what is between, closed the connection amid the answer.
fn is_cut_off(error: &io::Error) -> bool {
    let mut cause = error.get_ref().map(|inner| inner as &dyn Error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(is_cut_off) {
            return true;
        }
        cause = error.source();
    }
    error.kind() == io::ErrorKind::UnexpectedEof
}

async fn within<T>(
    call: &'static str,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReflectorError> {
    match tokio::time::timeout(CALL_LIMIT, answer).await {
        Ok(answer) => answer.map_err(|source| ReflectorError::Call { call, source }),
        Err(_) => Err(ReflectorError::Unanswered { call }),
    }
}
