//! What hangs below an object: status, scale, binding, tokens, streams. One a file.

mod approval;
pub(crate) mod binding;
mod connect;
mod eviction;
mod finalize;
mod pod_spec;
mod scale;
mod sent;
pub(crate) mod stream;
mod token;

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_registry::{part::Part, strategy::Subresource};
use http::{Response, StatusCode, request::Parts};
use serde_json::{Value, json};

use crate::{
    body::Body,
    endpoints::{self, Call},
    reply::Reply,
    request_info::Verb,
};

pub(crate) use stream::node_tls_config;

/// Serves a request below an object.
pub(crate) async fn serve(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    let served = call
        .resource
        .info
        .subresources
        .iter()
        .find(|one| one.name() == call.info.subresource);
    let Some(subresource) = served else {
        return Err(Status::no_such_path());
    };
    let verb = call.info.verb;
    // Boxed where it is large: otherwise every request would have room for the largest of them.
    let reply = match (subresource, verb) {
        (
            Subresource::Status
            | Subresource::Approval
            | Subresource::EphemeralContainers
            | Subresource::Resize,
            Verb::Get,
        ) => endpoints::get::get(call).await,
        (Subresource::Status, Verb::Update) => {
            Box::pin(endpoints::update::update(call, Part::Status)).await
        }
        (Subresource::Status, Verb::Patch) => {
            Box::pin(endpoints::patch::patch(call, Part::Status)).await
        }
        (Subresource::EphemeralContainers, Verb::Update | Verb::Patch) => {
            Box::pin(pod_spec::write(call, Part::EphemeralContainers)).await
        }
        (Subresource::Resize, Verb::Update | Verb::Patch) => {
            Box::pin(pod_spec::write(call, Part::Resize)).await
        }
        (Subresource::Approval, Verb::Update | Verb::Patch) => {
            Box::pin(approval::write(call)).await
        }
        (Subresource::Scale, Verb::Get) => scale::get(call).await,
        (Subresource::Scale, Verb::Update | Verb::Patch) => Box::pin(scale::write(call)).await,
        (Subresource::Binding, Verb::Create) => Box::pin(binding::create(call)).await,
        (Subresource::Eviction, Verb::Create) => Box::pin(eviction::create(call)).await,
        (Subresource::Token, Verb::Create) => Box::pin(token::create(call)).await,
        (Subresource::Finalize, Verb::Update) => Box::pin(finalize::update(call)).await,
        (Subresource::Log, Verb::Get) => return Box::pin(stream::log(call, parts)).await,
        (
            Subresource::Exec | Subresource::Attach | Subresource::Portforward,
            Verb::Get | Verb::Create,
        )
        | (Subresource::Proxy, _) => {
            return Box::pin(connect::serve(call, parts, *subresource)).await;
        }
        _ => Err(call.unsupported()),
    };
    reply.map(Reply::into_response)
}

/// The answer to a request that made something other than the object itself.
pub(crate) fn success() -> Reply {
    Reply::value(&succeeded()).with_status(StatusCode::CREATED)
}

/// What it says.
pub(crate) fn succeeded() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// The written object.
fn parse(json: &Bytes) -> Result<Value, Status> {
    serde_json::from_slice(json).map_err(Status::internal)
}
