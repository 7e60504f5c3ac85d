//! The paths of a resource and of its subresources, with the operations on each.

use coracle_registry::{
    api_resource::ApiResource,
    strategy::{Scope, Subresource},
};
use serde_json::{Map, Value, json};

use super::{
    operations::{Action, Operation, Target},
    parameters::parameter,
};
use crate::published::Shown;

/// Adds every path of a resource.
pub(super) fn of_resource(paths: &mut Map<String, Value>, shown: &Shown) {
    let info = &shown.info;
    let root = match &*info.group {
        "" => format!("/api/{}", info.version),
        group => format!("/apis/{group}/{}", info.version),
    };
    let base = match info.scope {
        Scope::Namespaced => format!("{root}/namespaces/{{namespace}}/{}", info.plural),
        Scope::Cluster => format!("{root}/{}", info.plural),
    };
    let target = Target {
        shown,
        sub: None,
        in_all_namespaces: false,
    };
    let collection = [
        ("create", Action::Post),
        ("list", Action::List),
        ("deletecollection", Action::DeleteCollection),
    ];
    add(
        paths,
        base.clone(),
        &target,
        &allowed(info, &collection),
        &[],
    );
    let item_path = format!("{base}/{{name}}");
    let item = [
        ("get", Action::Get),
        ("update", Action::Put),
        ("patch", Action::Patch),
        ("delete", Action::Delete),
    ];
    add(
        paths,
        item_path.clone(),
        &target,
        &allowed(info, &item),
        &["name"],
    );
    if info.scope == Scope::Namespaced {
        let target = Target {
            in_all_namespaces: true,
            ..target
        };
        add(
            paths,
            format!("{root}/{}", info.plural),
            &target,
            &allowed(info, &[("list", Action::List)]),
            &[],
        );
    }
    for sub in info.subresources.iter() {
        let target = Target {
            sub: Some(*sub),
            ..target
        };
        let path = format!("{item_path}/{}", sub.name());
        add(paths, path, &target, actions(*sub), &["name"]);
    }
}

fn allowed(info: &ApiResource, verbs: &[(&str, Action)]) -> Vec<Action> {
    verbs
        .iter()
        .filter(|(verb, _)| info.has_verb(verb))
        .map(|(_, action)| *action)
        .collect()
}

fn actions(sub: Subresource) -> &'static [Action] {
    match sub {
        Subresource::Status
        | Subresource::Scale
        | Subresource::EphemeralContainers
        | Subresource::Resize
        | Subresource::Approval => &[Action::Get, Action::Put, Action::Patch],
        Subresource::Binding | Subresource::Eviction | Subresource::Token => &[Action::Post],
        Subresource::Log => &[Action::Get],
        Subresource::Exec | Subresource::Attach | Subresource::Portforward => {
            &[Action::ConnectGet, Action::ConnectPost]
        }
        Subresource::Proxy => &[
            Action::ConnectGet,
            Action::ConnectPost,
            Action::ConnectPut,
            Action::ConnectDelete,
        ],
        Subresource::Finalize => &[Action::Put],
    }
}

fn add(
    paths: &mut Map<String, Value>,
    path: String,
    target: &Target<'_>,
    actions: &[Action],
    names: &[&str],
) {
    if actions.is_empty() {
        return;
    }
    let mut parameters: Vec<Value> = names
        .iter()
        .map(|name| path_parameter(name, target))
        .collect();
    if target.shown.info.scope == Scope::Namespaced && !target.in_all_namespaces {
        parameters.push(path_parameter("namespace", target));
    }
    parameters.push(parameter("pretty", "string", "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."));
    let mut item = json!({"parameters": parameters});
    for action in actions {
        item[action.method()] = Operation {
            action: *action,
            target,
        }
        .value();
    }
    paths.insert(path, item);
}

fn path_parameter(name: &str, target: &Target<'_>) -> Value {
    let description = match name {
        "namespace" => "object name and auth scope, such as for teams and projects".to_owned(),
        _ => format!("name of the {}", target.kind().2),
    };
    json!({
        "name": name, "in": "path", "description": description, "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}
