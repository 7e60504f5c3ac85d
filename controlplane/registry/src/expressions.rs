//! Expressions in CEL about a request: what those of match conditions and policies may name, and
//! how they are compiled.
//!
//! Rules of custom resources name other things (`rules`). What the names stand for in one request
//! is admission's (`coracle_admission::matching`).
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel/compile.go` at v1.37.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use coracle_cel::{
    Program, check,
    env::Env,
    parse,
    schema::{DeclField, DeclKind, DeclType, DeclTypes, ListKind},
    types::Type,
};

/// Names of expressions about a request, in the order in which their values are given. `params`
/// comes after them where there may be some.
pub const NAMES: [&str; 6] = [
    "object",
    "oldObject",
    "namespaceObject",
    "request",
    "authorizer",
    "authorizer.requestResource",
];

/// The type of `request`: an AdmissionRequest without the objects.
pub static REQUEST: LazyLock<Arc<DeclType>> = LazyLock::new(request);

/// The type of `namespaceObject`.
pub static NAMESPACE: LazyLock<Arc<DeclType>> = LazyLock::new(namespace);

static TYPES: LazyLock<Arc<DeclTypes>> =
    LazyLock::new(|| Arc::new(DeclTypes::new([&*REQUEST, &*NAMESPACE])));

/// What expressions may name; with `has_params` also `params`.
#[must_use]
pub fn env(has_params: bool) -> Env {
    let opaque = |name: &str| Type::object(&format!("kubernetes.authorization.{name}"));
    let types = [
        Type::Dyn,
        Type::Dyn,
        NAMESPACE.checked(),
        REQUEST.checked(),
        opaque("Authorizer"),
        opaque("ResourceCheck"),
    ];
    let named = NAMES.into_iter().zip(types);
    let env = named.fold(Env::new(), |env, (name, of)| env.variable(name, of));
    let env = env.types(Arc::clone(&*TYPES) as _);
    if has_params {
        env.variable("params", Type::Dyn)
    } else {
        env
    }
}

/// Compiles an expression whose value is of this type; `Dyn` is any.
///
/// # Errors
/// In upstream's words.
pub fn compile(text: &str, env: &Env, result: &Type) -> Result<Program, String> {
    let checked = parse(text).and_then(|ast| check(ast, env));
    let checked = checked.map_err(|issues| format!("compilation failed: {issues}"))?;
    if result != &Type::Dyn && checked.result() != result {
        return Err(format!("must evaluate to {result}"));
    }
    Program::new(&checked).map_err(|issues| format!("program instantiation failed: {issues}"))
}

type Field = (&'static str, Arc<DeclType>);

fn of(kind: DeclKind) -> Arc<DeclType> {
    Arc::new(DeclType::new(kind))
}

fn text() -> Arc<DeclType> {
    of(DeclKind::String)
}

fn list(element: Arc<DeclType>) -> Arc<DeclType> {
    let list = ListKind::Atomic;
    of(DeclKind::List { element, list })
}

fn map(value: Arc<DeclType>) -> Arc<DeclType> {
    of(DeclKind::Map { value })
}

fn object(name: &str, fields: impl IntoIterator<Item = Field>) -> Arc<DeclType> {
    let fields = fields.into_iter().map(|(name, of)| {
        let json_name = name.into();
        (name.into(), DeclField { json_name, of })
    });
    let fields: BTreeMap<Box<str>, DeclField> = fields.collect();
    let name = format!("kubernetes.{name}").into();
    of(DeclKind::Object { name, fields })
}

fn texts<const N: usize>(names: [&'static str; N]) -> impl Iterator<Item = Field> {
    names.into_iter().map(|name| (name, text()))
}

fn request() -> Arc<DeclType> {
    let kind = object("GroupVersionKind", texts(["group", "version", "kind"]));
    let resource = object(
        "GroupVersionResource",
        texts(["group", "version", "resource"]),
    );
    let user = [("groups", list(text())), ("extra", map(list(text())))];
    let user = object("UserInfo", texts(["username", "uid"]).chain(user));
    let fields = [
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("userInfo", user),
        ("dryRun", of(DeclKind::Bool)),
        ("options", of(DeclKind::Dyn)),
    ];
    let plain = [
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
    ];
    object("AdmissionRequest", texts(plain).chain(fields))
}

fn namespace() -> Arc<DeclType> {
    let time = || of(DeclKind::Timestamp);
    let names = list(text());
    let spec = object("NamespaceSpec", [("finalizers", names.clone())]);
    let condition = object(
        "NamespaceCondition",
        texts(["status", "type", "message", "reason"]).chain([("lastTransitionTime", time())]),
    );
    let status = [("conditions", list(condition)), ("phase", text())];
    let status = object("NamespaceStatus", status);
    let metadata = [
        ("labels", map(text())),
        ("annotations", map(text())),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", of(DeclKind::Int)),
        ("deletionTimestamp", time()),
        ("generation", of(DeclKind::Int)),
        ("finalizers", names),
    ];
    let plain = [
        "name",
        "generateName",
        "namespace",
        "UID",
        "resourceVersion",
    ];
    let metadata = object("NamespaceMetadata", texts(plain).chain(metadata));
    object(
        "Namespace",
        [("metadata", metadata), ("spec", spec), ("status", status)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_name_what_a_request_has() {
        let told = |text: &str| compile(text, &env(false), &Type::Bool).err();
        for text in [
            "object.spec.replicas > 1 || oldObject == null",
            "request.userInfo.username.startsWith('system:') && 'a' in request.userInfo.groups",
            "request.operation == 'CREATE' && !request.dryRun && request.options.fieldManager == 'a'",
            "namespaceObject.metadata.labels['a'] == 'b' && namespaceObject.status.phase == 'Active'",
            "authorizer.group('').resource('pods').check('get').allowed()",
            "authorizer.requestResource.check('breakglass').allowed()",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
        for (text, expect) in [
            ("'a'", "must evaluate to bool"),
            (
                "request.uid == ''",
                "compilation failed: ERROR: <input>:1:8: undefined field 'uid'\n | request.uid == ''\n | .......^",
            ),
            (
                "params.a",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a\n | ^",
            ),
        ] {
            assert_eq!(told(text).as_deref(), Some(expect), "{text}");
        }
        assert!(compile("params.a == 1", &env(true), &Type::Bool).is_ok());
    }
}
