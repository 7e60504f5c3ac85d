//! Who answers a request that is allowed and has been read: the verb of its resource, or what hangs
//! below the object.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_registry::{part::Part, resource::Resource};
use http::{Response, request::Parts};

use crate::{
    body::Body,
    catalog::{self, Serving},
    endpoints::{self, Call},
    reply::Reply,
    request_info::Verb,
    state::State,
    subresource::{self, stream::messages},
};

/// Who collects what has no owner, and who empties namespaces.
const COLLECTORS: [&str; 2] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];

/// Who answers a request: `serving`, if it says so.
pub(super) async fn answer(
    serving: &Serving<State>,
    call: catalog::Call<'_, State>,
    parts: &Parts,
) -> Result<Response<Body>, Status> {
    match serving {
        Serving::Virtual(resource) => resource.serve(call).await.map(Reply::into_response),
        Serving::Stored(resource) => {
            let resource = of_metadata(resource, &call).unwrap_or(resource);
            dispatch(&call.to(resource), parts).await
        }
    }
}

/// The resource for those parts of the cluster that look at metadata alone: they wait for no
/// conversion webhook.
fn of_metadata<'a>(
    resource: &'a Arc<Resource>,
    call: &catalog::Call<'_, State>,
) -> Option<&'a Arc<Resource>> {
    let info = call.info;
    let makes = matches!(info.verb, Verb::Create | Verb::Update);
    if !COLLECTORS.contains(&&*call.user.name) || !info.subresource.is_empty() || makes {
        return None;
    }
    let object = resource
        .cache
        .get(&resource.key(&info.namespace, &info.name));
    resource.as_stored(object.as_deref())
}

async fn dispatch(call: &Call<'_>, parts: &Parts) -> Result<Response<Body>, Status> {
    if call.info.subresource.is_empty() {
        let reply = main_resource(call).await?;
        if call.info.verb == Verb::Watch && messages::is_asked(&parts.headers) {
            return messages::watch(call.server, parts, reply.body);
        }
        return Ok(reply
            .deprecating(&call.resource.info.deprecated)
            .into_response());
    }
    subresource::serve(call, parts).await
}

async fn main_resource(call: &Call<'_>) -> Result<Reply, Status> {
    let verb = call.info.verb;
    if !call.resource.info.has_verb(verb.as_str()) {
        return Err(call.unsupported());
    }
    match verb {
        // Large futures are boxed: the common path stays small.
        Verb::Get => endpoints::get::get(call).await,
        Verb::List => Box::pin(endpoints::list::list(call)).await,
        Verb::Watch => Box::pin(endpoints::watch::watch(call)).await,
        Verb::Create if !call.info.is_named && has_place(call) => {
            Box::pin(endpoints::create::create(call)).await
        }
        Verb::Update if !call.info.name.is_empty() => {
            Box::pin(endpoints::update::update(call, Part::Main)).await
        }
        Verb::Patch if !call.info.name.is_empty() => {
            Box::pin(endpoints::patch::patch(call, Part::Main)).await
        }
        Verb::Delete => Box::pin(endpoints::delete::delete(call)).await,
        Verb::DeleteCollection if has_place(call) => {
            Box::pin(endpoints::delete::delete_collection(call)).await
        }
        _ => Err(call.unsupported()),
    }
}

/// Whether the URL says where objects are to be: what is in namespaces is only read in all of them
/// at once.
fn has_place(call: &Call<'_>) -> bool {
    call.info.in_namespace || !call.resource.is_namespaced()
}
