//! Resources of the core group that have no store: `bindings`, and the old `componentstatuses`.
//!
//! Source: `pkg/registry/core/pod/storage/storage.go` (LegacyBindingREST),
//! `pkg/registry/core/componentstatus` at v1.37.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use coracle_admission::{Operation, Request};
use coracle_api::{meta, resource::GroupResource, status::Status};
use coracle_registry::{
    api_resource::ApiResource,
    cells::{self, NAME, text},
    strategy::{Column, ResourceInfo, Scope, Strategy},
    value::{items, string},
};
use serde_json::{Value, json};

use crate::{
    catalog::{Call, Virtual},
    endpoints::{self, now_secs},
    reply::Reply,
    request_info::{ResourceRequest, Verb},
    state::State,
    subresource::{self, binding},
    table::{
        self, ListMeta, TableOptions,
        accept::{self, Form},
    },
};

static BINDINGS: ResourceInfo = ResourceInfo {
    kind: "Binding",
    plural: "bindings",
    singular: "binding",
    verbs: &["create"],
    ..ResourceInfo::in_group("", "v1")
};

static COMPONENT_STATUSES: ResourceInfo = ResourceInfo {
    kind: "ComponentStatus",
    plural: "componentstatuses",
    singular: "componentstatus",
    short_names: &["cs"],
    scope: Scope::Cluster,
    verbs: &["get", "list"],
    deprecated: "v1 ComponentStatus is deprecated in v1.19+",
    ..ResourceInfo::in_group("", "v1")
};

/// The store is a part of the server: there is no etcd to tell of.
const COMPONENTS: [&str; 2] = ["controller-manager", "scheduler"];

/// One of these.
struct Unstored(Arc<ApiResource>);

/// All of them.
pub(crate) fn resources() -> Vec<Arc<dyn Virtual<State>>> {
    let resource = |info: &'static ResourceInfo| -> Arc<dyn Virtual<State>> {
        Arc::new(Unstored(Arc::new(info.into())))
    };
    [&BINDINGS, &COMPONENT_STATUSES].map(resource).into()
}

#[async_trait]
impl Virtual<State> for Unstored {
    fn info(&self) -> &Arc<ApiResource> {
        &self.0
    }

    async fn serve(&self, call: Call<'_, State>) -> Result<Reply, Status> {
        match (&*self.0.plural, call.info.verb) {
            ("bindings", Verb::Create) => bind(&self.0, call).await,
            ("componentstatuses", Verb::Get | Verb::List) => status(&call),
            (_, verb) => Err(Status::method_not_supported(
                &self.0.group_resource(),
                verb.as_str(),
            )),
        }
    }
}

/// The same as a binding below its pod, whose name is in the body. Admission sees it as what it is
/// called in the URL.
async fn bind(about: &ApiResource, call: Call<'_, State>) -> Result<Reply, Status> {
    let pods = call.server.registry.core("pods");
    let nameless: endpoints::Call<'_> = call.to(pods.ok_or_else(Status::no_such_path)?);
    let decoded = nameless.decode(&binding::gvk())?;
    let mut object = decoded.object;
    let named = meta::name(&object).to_owned();
    let request = Request {
        resource: about,
        name: &named,
        ..nameless.admission_request(Operation::Create, nameless.write_options()?)
    };
    let looked_at = request.about(&mut object, None);
    let mutated = nameless.server.mutated(looked_at).await?;
    let name = meta::name(&object).to_owned();
    if name.is_empty() {
        return Err(Status::bad_request("name is required"));
    }
    let below = ResourceRequest {
        resource: "pods",
        subresource: "binding",
        name: Cow::Borrowed(&name),
        ..nameless.info.clone()
    };
    let call = endpoints::Call {
        info: &below,
        ..nameless
    };
    let told = binding::bind(&call, &request, &mut object).await?;
    let warnings = [decoded.warnings, mutated.warnings, told].concat();
    Ok(subresource::success().with_warnings(warnings))
}

/// Who answers here runs with all of its parts, or is about to be started again.
fn status(call: &Call<'_, State>) -> Result<Reply, Status> {
    let about = GroupResource::new("", COMPONENT_STATUSES.plural);
    let name = call.info.name.as_ref();
    let is_list = call.info.verb == Verb::List;
    let components: Vec<Value> = COMPONENTS
        .iter()
        .filter(|component| is_list || **component == name)
        .map(|name| component(name))
        .collect();
    if components.is_empty() && !is_list {
        return Err(Status::not_found(&about, name));
    }
    let accept = call
        .headers
        .get(http::header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let form = accept::negotiate(accept)
        .ok_or_else(|| Status::not_acceptable(&crate::encoding::MEDIA_TYPES))?;
    let reply = match (form, is_list) {
        (Form::Table(version), _) => {
            let include =
                table::IncludeObject::parse(call.query.get("includeObject").unwrap_or_default());
            let include = include.unwrap_or(table::IncludeObject::Metadata);
            let options = TableOptions {
                version,
                include,
                with_columns: true,
                now_secs: now_secs(),
            };
            let encoded: Vec<Vec<u8>> = components
                .iter()
                .map(|one| one.to_string().into_bytes())
                .collect();
            let rows = encoded.iter().map(Vec::as_slice);
            Reply::json(table::render(
                &ComponentStatus,
                rows,
                options,
                &ListMeta::default(),
            ))
        }
        (_, true) => Reply::value(
            &json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": components}),
        ),
        (_, false) => Reply::value(&components[0]),
    };
    Ok(reply.deprecating(COMPONENT_STATUSES.deprecated))
}

fn component(name: &str) -> Value {
    json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]})
}

/// The columns.
struct ComponentStatus;

static COLUMNS: &[Column] = &[
    NAME,
    text("Status", "Status of the component conditions"),
    text("Message", "Message of the component conditions"),
    text("Error", "Error of the component conditions"),
];

impl Strategy for ComponentStatus {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        let healthy = items(&object["conditions"])
            .iter()
            .find(|condition| condition["type"] == "Healthy");
        let said = |field: &str| healthy.map_or("", |condition| string(&condition[field]));
        let status = match said("status") {
            "True" => "Healthy",
            "False" => "Unhealthy",
            _ => "Unknown",
        };
        vec![
            cells::name(object),
            status.into(),
            said("message").into(),
            said("error").into(),
        ]
    }
}
