//! The questions of a reflector to the server, each with a limit to the time until its answer
//! begins.
//!
//! Source: `ListWatch` of `k8s.io/client-go/tools/cache/listwatch.go`.

use std::{fmt::Debug, future::Future, pin::Pin, time::Duration};

use futures::Stream;
use kube::{
    Api,
    api::{ListParams, ObjectList, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

use super::ReflectorError;

/// Objects in one page of a list, where the server has no streamed ones.
const PAGE: u32 = 500;
/// How long the server keeps a watch open.
const WATCH_SECONDS: u32 = 290;
/// How long the server may think before it answers: longer than it lets any request wait in a
/// queue.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(60);

/// What a watch brings.
pub(super) type Events<K> = Pin<Box<dyn Stream<Item = Result<WatchEvent<K>, kube::Error>> + Send>>;

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
pub(super) struct ListWatch<K> {
    pub(super) api: Api<K>,
    pub(super) selection: Selection,
}

impl<K> ListWatch<K>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// A watch that begins with what there is.
    pub(super) async fn watch_list(&self) -> Result<Events<K>, ReflectorError> {
        let params = WatchParams {
            send_initial_events: true,
            ..self.selection.watch()
        };
        let events = within("watch from the beginning", self.api.watch(&params, "0")).await?;
        Ok(Box::pin(events))
    }

    /// What has happened since a revision, and what happens.
    pub(super) async fn watch(&self, revision: &str) -> Result<Events<K>, ReflectorError> {
        let params = self.selection.watch();
        let events = within("watch", self.api.watch(&params, revision)).await?;
        Ok(Box::pin(events))
    }

    /// A page of what there is: the first, or the one that a token of the page before names.
    pub(super) async fn page(
        &self,
        continue_token: Option<String>,
    ) -> Result<ObjectList<K>, ReflectorError> {
        let params = self.selection.page(continue_token);
        within("list", self.api.list(&params)).await
    }
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
