//! What expressions of admission may name.
//!
//! The place of a value does not depend on which others there are: what an expression may not name
//! has a name that nobody can write.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use super::patch_types::PatchTypes;
use crate::{
    env::{Composition, Env},
    schema::{DeclField, DeclKind, DeclType, DeclTypes, ListKind},
    types::{Type, Types},
};

/// Stands in the place of what is not there.
const ABSENT: &str = "#absent";

static REQUEST: LazyLock<Arc<DeclType>> = LazyLock::new(|| {
    let text = || of(DeclKind::String);
    let names = |last| vec![("group", text()), ("version", text()), (last, text())];
    let kind = object("kubernetes.GroupVersionKind", names("kind"));
    let resource = object("kubernetes.GroupVersionResource", names("resource"));
    let user = object(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", list(text())),
            ("extra", map(list(text()))),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", of(DeclKind::Bool)),
            ("options", of(DeclKind::Dyn)),
        ],
    )
});

static NAMESPACE: LazyLock<Arc<DeclType>> = LazyLock::new(|| {
    let text = || of(DeclKind::String);
    let moment = || of(DeclKind::Timestamp);
    let spec = object(
        "kubernetes.NamespaceSpec",
        vec![("finalizers", list(text()))],
    );
    let condition = object(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", moment()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        vec![("conditions", list(condition)), ("phase", text())],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        vec![
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            // As upstream spells it: no object has a field of this name.
            ("UID", text()),
            ("creationTimestamp", moment()),
            ("deletionGracePeriodSeconds", of(DeclKind::Int)),
            ("deletionTimestamp", moment()),
            ("generation", of(DeclKind::Int)),
            ("resourceVersion", text()),
            ("finalizers", list(text())),
        ],
    );
    object(
        "kubernetes.Namespace",
        vec![("metadata", metadata), ("spec", spec), ("status", status)],
    )
});

static TYPES: LazyLock<Arc<DeclTypes>> =
    LazyLock::new(|| Arc::new(DeclTypes::new([&*REQUEST, &*NAMESPACE])));

/// The type of `request`.
pub fn request_type() -> &'static DeclType {
    &REQUEST
}

/// The type of `namespaceObject`.
pub fn namespace_type() -> &'static DeclType {
    &NAMESPACE
}

fn of(kind: DeclKind) -> Arc<DeclType> {
    Arc::new(DeclType::new(kind))
}

fn list(element: Arc<DeclType>) -> Arc<DeclType> {
    let list = ListKind::Atomic;
    of(DeclKind::List { element, list })
}

fn map(value: Arc<DeclType>) -> Arc<DeclType> {
    of(DeclKind::Map { value })
}

fn object(name: &str, fields: Vec<(&str, Arc<DeclType>)>) -> Arc<DeclType> {
    let fields = fields.into_iter().map(|(name, of)| {
        let json_name = name.into();
        (name.into(), DeclField { json_name, of })
    });
    of(DeclKind::Object {
        name: name.into(),
        fields: fields.collect::<BTreeMap<_, _>>(),
    })
}

/// Of what types the values of a policy are.
#[derive(Debug, Clone)]
pub struct Names {
    /// `object` and `oldObject`: dynamic, unless types are only checked.
    pub object: Type,
    /// `params`; `None` if there are none.
    pub params: Option<Type>,
    /// What these types are made of.
    pub types: Option<Arc<DeclTypes>>,
}

impl Names {
    /// As they are when a request is looked at: nothing is known before.
    pub fn dynamic(has_params: bool) -> Self {
        Self {
            object: Type::Dyn,
            params: has_params.then_some(Type::Dyn),
            types: None,
        }
    }

    /// The names in the order of [`Inputs`](super::Inputs).
    pub(super) fn env(
        &self,
        variables: Option<Arc<Composition>>,
        has_authorizer: bool,
        has_patches: bool,
    ) -> Env {
        let (params, of_params) = match &self.params {
            Some(of) => ("params", of.clone()),
            None => (ABSENT, Type::Dyn),
        };
        let [authorizer, resource] = if has_authorizer {
            ["authorizer", "authorizer.requestResource"]
        } else {
            [ABSENT; 2]
        };
        let authorizing = |name: &str| Type::object(&format!("kubernetes.authorization.{name}"));
        let mut env = Env::new()
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("namespaceObject", NAMESPACE.checked())
            .variable("request", REQUEST.checked())
            .variable(params, of_params)
            .variable(authorizer, authorizing("Authorizer"))
            .variable(resource, authorizing("ResourceCheck"))
            .types(Arc::clone(&*TYPES) as Arc<dyn Types>);
        if let Some(types) = &self.types {
            env = env.types(Arc::clone(types) as Arc<dyn Types>);
        }
        if has_patches {
            env = env.types(Arc::new(PatchTypes));
        }
        match variables {
            Some(variables) => env.composed("variables", variables),
            None => env,
        }
    }
}
