//! A kind that is not served, and that clients ask for all the same, without a look at discovery:
//! kubectl lists CustomResourceDefinitions before it makes what cannot be patched, such as a
//! TokenReview, and takes it for a failure that there is no such path. There are none, and the list
//! says so. Nothing else of the kind is there: it can be neither watched nor made.
//!
//! Source: `QueryParamVerifier.HasSupport`, `CRDFromDynamic` in
//! `k8s.io/cli-runtime/pkg/resource` at v1.37.

use coracle_api::status::Status;
use serde_json::json;

use crate::{
    reply::Reply,
    request_info::{ResourceRequest, Verb},
    state::State,
};

const GROUP: &str = "apiextensions.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions";

/// What is answered to a request about a resource that nobody serves.
///
/// # Errors
/// 404 for all but that list.
pub(crate) fn answer(server: &State, request: &ResourceRequest<'_>) -> Result<Reply, Status> {
    let names = (request.group, request.version, request.resource);
    let is_list = request.verb == Verb::List && !request.in_namespace;
    if !is_list || names != (GROUP, "v1", DEFINITIONS) {
        return Err(Status::no_such_path());
    }
    let revision = server.store.cache.revision().to_string();
    Ok(Reply::value(&json!({
        "kind": "CustomResourceDefinitionList", "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"resourceVersion": revision}, "items": [],
    })))
}
