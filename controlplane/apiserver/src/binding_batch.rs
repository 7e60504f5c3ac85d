//! `scheduling.coracle.dev`: many Bindings in one request, for a scheduler that has many.
//!
//! Nothing is stored. Each Binding goes the way that it would have gone alone, with its own
//! authorization, admission and answer; what is saved is the request. They are under way together,
//! so the store writes them together, and the failure of one is none of another's.
//!
//! ```text
//! POST {"bindings": [Binding, ...]}    a Binding names its pod's namespace and uid
//! 201  {"outcomes": [Status, ...]}     in the same order
//! ```

mod openapi;

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_api::{
    decode::ContentType,
    status::{FieldErrors, Status},
};
use coracle_registry::{
    api_resource::ApiResource,
    strategy::{ResourceInfo, Scope},
};
use futures::{StreamExt as _, stream::FuturesOrdered};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    catalog::{Call, Virtual},
    endpoints::content_type,
    limits::RETRY_SECS,
    published::Definitions,
    reply::Reply,
    request_info::{RequestInfo, ResourceRequest, Verb},
    state::State,
    subresource::{binding, succeeded},
};

const GROUP: &str = "scheduling.coracle.dev";
const VERSION: &str = "v1alpha1";
/// Most Bindings of one request.
const MAX_BINDINGS: usize = 256;
/// For each: less than who has sent them waits.
const BIND_TIMEOUT: Duration = Duration::from_secs(5);

static INFO: ResourceInfo = ResourceInfo {
    kind: "BindingBatch",
    plural: "bindingbatches",
    singular: "bindingbatch",
    scope: Scope::Cluster,
    verbs: &["create"],
    ..ResourceInfo::in_group(GROUP, VERSION)
};

/// The one resource of this group.
struct BindingBatches {
    info: Arc<ApiResource>,
    definitions: Arc<Definitions>,
}

/// What is sent, each Binding as it was written.
#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    bindings: Vec<&'a RawValue>,
}

/// Whose Binding it is.
#[derive(Deserialize)]
struct About<'a> {
    #[serde(borrow)]
    metadata: Named<'a>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// All of them.
pub(crate) fn resources() -> Vec<Arc<dyn Virtual<State>>> {
    vec![Arc::new(BindingBatches {
        info: Arc::new((&INFO).into()),
        definitions: Arc::new(openapi::definitions(INFO.kind)),
    })]
}

#[async_trait]
impl Virtual<State> for BindingBatches {
    fn info(&self) -> &Arc<ApiResource> {
        &self.info
    }

    fn definitions(&self) -> Option<Arc<Definitions>> {
        Some(Arc::clone(&self.definitions))
    }

    async fn serve(&self, call: Call<'_, State>) -> Result<Reply, Status> {
        if call.info.verb != Verb::Create {
            let about = self.info.group_resource();
            return Err(Status::method_not_supported(
                &about,
                call.info.verb.as_str(),
            ));
        }
        create(&self.info, &call).await
    }
}

async fn create(about: &ApiResource, call: &Call<'_, State>) -> Result<Reply, Status> {
    if content_type(call.headers)? != ContentType::Json {
        return Err(Status::unsupported_media_type(&["application/json"]));
    }
    let batch: Batch<'_> = serde_json::from_slice(&call.body)
        .map_err(|error| Status::bad_request(format!("a BindingBatch is expected: {error}")))?;
    let count = batch.bindings.len();
    if count > MAX_BINDINGS {
        let mut errors = FieldErrors::default();
        errors.too_many("bindings", count, MAX_BINDINGS);
        return Err(Status::invalid(&about.gvk(), "", errors));
    }
    let under_way: FuturesOrdered<_> = batch
        .bindings
        .iter()
        .map(|sent| in_time(bind(call, sent)))
        .collect();
    let outcomes: Vec<_> = under_way
        .map(|outcome| outcome.map_or_else(|status| status.to_json(), |()| succeeded()))
        .collect()
        .await;
    let answer = json!({
        "kind": about.kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {},
        "outcomes": outcomes,
    });
    Ok(Reply::value(&answer).with_status(StatusCode::CREATED))
}

/// One that takes long, as an admission may, keeps nobody else's outcome.
async fn in_time(bind: impl Future<Output = Result<(), Status>>) -> Result<(), Status> {
    let late = || Status::timeout("the binding did not complete in time", RETRY_SECS);
    let bound = tokio::time::timeout(BIND_TIMEOUT, bind).await;
    bound.unwrap_or_else(|_| Err(late()))
}

/// Carries out one of them as if it had been sent to its pod.
async fn bind(call: &Call<'_, State>, sent: &RawValue) -> Result<(), Status> {
    let text = sent.get();
    let About { metadata } = serde_json::from_str(text).map_err(|error| {
        let why =
            format!("a Binding with the namespace and the name of a pod is expected: {error}");
        Status::bad_request(why)
    })?;
    let request = RequestInfo::Resource(ResourceRequest {
        verb: Verb::Create,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "binding",
        namespace: metadata.namespace,
        name: metadata.name,
        rest: "",
        in_namespace: true,
        is_named: true,
        is_old_watch: false,
    });
    let attributes = request.attributes(call.user, &http::Method::POST, call.query);
    call.server.authorize(call.requester, &attributes).await?;
    let RequestInfo::Resource(info) = &request else {
        return Err(Status::no_such_path());
    };
    let pods = call.server.registry.core("pods");
    let alone = call.part(info, call.body.slice_ref(text.as_bytes()));
    let below = alone.to(pods.ok_or_else(Status::no_such_path)?);
    binding::create(&below).await.map(drop)
}
