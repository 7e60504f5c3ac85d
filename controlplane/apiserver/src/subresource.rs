//! What hangs below an object: status, scale, binding, tokens, streams.

use coracle_api::status::Status;
use http::{Response, request::Parts};

use crate::{
    body::Body,
    endpoints::{self, Call},
    handler::unsupported,
    registry::{store::update::Part, strategy::Subresource},
    reply::Reply,
    request_info::Verb,
};

/// Serves a request below an object.
pub(crate) async fn serve(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    let served = call.resource.info.subresources.iter().find(|one| one.name() == call.info.subresource);
    let Some(subresource) = served else { return Err(Status::no_such_path()) };
    let _ = parts;
    let reply = match subresource {
        Subresource::Status => status(call).await,
        _ => Err(unsupported(call)),
    };
    reply.map(Reply::into_response)
}

async fn status(call: &Call<'_>) -> Result<Reply, Status> {
    match call.info.verb {
        Verb::Get => endpoints::get::get(call).await,
        Verb::Update => Box::pin(endpoints::update::update(call, Part::Status)).await,
        Verb::Patch => Box::pin(endpoints::patch::patch(call, Part::Status)).await,
        _ => Err(unsupported(call)),
    }
}
