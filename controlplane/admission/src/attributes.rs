//! A write as admission sees it.
//!
//! Source: `k8s.io/apiserver/pkg/admission/attributes.go` at v1.37.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use coracle_api::{meta, name, resource::Gvk, status::Status};
use coracle_auth::user::UserInfo;
use coracle_registry::{
    api_resource::ApiResource, resource::Resource, store::WriteOptions, strategy::Subresource,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    kinds::Kinds, policy::reinvocation::PolicyReinvocation, reinvocation::Reinvocation, told::Told,
};

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object, something that is made below one, such as an eviction, a Binding or a token,
    /// or a review, which is answered and not kept.
    Create,
    /// Any change: PUT, each patch, apply, most subresources.
    Update,
    /// The end of one object.
    Delete,
    /// What joins a client with what runs: exec, attach, port-forward, proxies. The object is the
    /// options of the request, such as PodExecOptions; what a plugin makes of them counts.
    Connect,
}

impl Operation {
    /// As rules of webhooks and policies have it, such as `CREATE`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Whether something is there afterwards that was not there before, in this form.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update)
    }
}

/// Who does what to which object: the same from the first try to the last.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Who asks.
    pub user: &'a UserInfo,
    /// What is done.
    pub operation: Operation,
    /// As the URL names it: a view if it is one. Objects are in the form of the kind that stores
    /// them, if any does: reviews are made to be answered.
    pub resource: &'a ApiResource,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for what is in none.
    pub namespace: &'a str,
    /// As the URL names it; empty for a POST to a collection.
    pub name: &'a str,
    /// As the request says.
    pub options: WriteOptions,
    /// What else it says of itself, for who is told of it.
    pub told: Told<'a>,
}

impl<'a> Request<'a> {
    /// One look at this write, at `object` in the place of `old`. For a deletion `object` is null,
    /// and `old` is what goes.
    pub fn about<'b>(&self, object: &'b mut Value, old: Option<&'b Value>) -> Attributes<'b>
    where
        'a: 'b,
    {
        Attributes {
            request: *self,
            object,
            old,
            is_changed: false,
            notes: Mutex::default(),
            reinvocation: Reinvocation::default(),
            policies: PolicyReinvocation::default(),
            alike: OnceLock::new(),
        }
    }

    /// The kind of the object, if it is not that of the resource: that of an eviction, of the
    /// options of a stream.
    pub fn foreign_kind(&self) -> Option<Gvk> {
        Self::foreign(self.subresource, self.resource)
    }

    /// The kind of the object where the resource is shown as another one.
    pub fn kind_as(&self, resource: &ApiResource) -> Gvk {
        Self::foreign(self.subresource, resource).unwrap_or_else(|| resource.gvk())
    }

    fn foreign(subresource: &str, resource: &ApiResource) -> Option<Gvk> {
        let subresource = Subresource::named(subresource)?;
        let (group, version, kind) = subresource.foreign_kind(&resource.kind)?;
        Some(Gvk::new(group, version, kind))
    }

    /// Whether this is about objects of this kind of the core group, not about what is below them.
    pub fn is_core(&self, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource.is_core(plural)
    }
}

/// A write at one moment.
pub struct Attributes<'a> {
    request: Request<'a>,
    object: &'a mut Value,
    old: Option<&'a Value>,
    is_changed: bool,
    notes: Mutex<Notes>,
    /// Whether plugins that change a write look at it once more.
    pub reinvocation: Reinvocation,
    /// The same of each policy.
    pub(crate) policies: PolicyReinvocation,
    /// Looked up once for all webhooks and policies.
    alike: OnceLock<Vec<Arc<Resource>>>,
}

/// Most bytes of what is told of a write besides the answer. A webhook may say megabytes, and there
/// may be many: what goes beyond is left out. A client is told four kilobytes.
const MOST_NOTED: usize = 1 << 20;

/// What is told of a write besides the answer.
#[derive(Debug, Default)]
struct Notes {
    warnings: Vec<String>,
    audit: BTreeMap<String, String>,
    bytes: usize,
}

impl Notes {
    /// Whether there is room for so much.
    fn take(&mut self, bytes: usize) -> bool {
        let sum = self.bytes + bytes;
        let has_room = sum <= MOST_NOTED;
        if has_room {
            self.bytes = sum;
        }
        has_room
    }
}

/// What a look at a write has brought.
#[derive(Debug, Default)]
pub struct Seen {
    /// Whether the object may be another one now.
    pub is_changed: bool,
    /// For the client.
    pub warnings: Vec<String>,
    /// For the audit, which is not there yet: nobody reads them.
    pub audit: BTreeMap<String, String>,
}

impl<'a> Deref for Attributes<'a> {
    type Target = Request<'a>;

    fn deref(&self) -> &Request<'a> {
        &self.request
    }
}

impl Attributes<'_> {
    /// As it will be written, or as it asks for what is below an object; null for a deletion.
    pub fn object(&self) -> &Value {
        self.object
    }

    /// The same, to be changed. Defaults and what a client may not write are put right afterwards.
    pub fn object_mut(&mut self) -> &mut Value {
        self.is_changed = true;
        self.object
    }

    /// Begins the turn of the policies in the second look.
    pub(crate) fn enter_policies(&mut self) {
        self.policies.enter(self.object);
    }

    /// Ends the turn of the policies.
    pub(crate) fn leave_policies(&mut self) {
        self.policies.leave(self.object);
    }

    /// As it is stored; `None` for a new object.
    pub fn old(&self) -> Option<&Value> {
        self.old
    }

    /// Other resources that show the same objects as that of the request.
    pub(crate) fn others_alike(&self, kinds: &dyn Kinds) -> &[Arc<Resource>] {
        self.alike.get_or_init(|| {
            let of = self.resource;
            let Some(own) = kinds.at(&of.group, &of.version, &of.plural) else {
                return Vec::new();
            };
            let mut others = kinds.alike(&own);
            others.retain(|other| !Arc::ptr_eq(&other.info, &own.info));
            others
        })
    }

    /// Tells the client something with the answer.
    pub fn warn(&self, warning: impl Into<String>) {
        let (warning, mut notes) = (warning.into(), self.notes.lock());
        if notes.take(warning.len()) {
            notes.warnings.push(warning);
        }
    }

    /// Has something put on record with the request. Shape of keys: `plugin.example/what`; what
    /// has another key is left out, and so is another value for one that is there.
    pub fn annotate(&self, key: String, value: String) {
        let is_key = key.split('/').count() == 2 && name::qualified_name_error(&key).is_none();
        let mut notes = self.notes.lock();
        if !is_key || notes.audit.get(&key).is_some_and(|known| *known != value) {
            tracing::debug!(key, "an audit annotation that cannot be taken is left out");
        } else if notes.take(key.len() + value.len()) {
            notes.audit.insert(key, value);
        }
    }

    /// The name to tell somebody: that of the URL or the object, or what a generated one is to
    /// begin with.
    pub fn shown_name(&self) -> &str {
        let names = [
            self.name,
            meta::name(self.object),
            meta::generate_name(self.object),
        ];
        names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default()
    }

    /// The 403 of this write.
    pub fn forbidden(&self, why: impl fmt::Display) -> Status {
        Status::forbidden(&self.resource.group_resource(), self.shown_name(), why)
    }

    /// Begins the turn of the webhooks that change a write.
    pub(crate) fn enter_webhooks(&mut self) {
        self.reinvocation.enter(self.object);
    }

    /// Ends it.
    pub(crate) fn leave_webhooks(&mut self) {
        self.reinvocation.leave(self.object);
    }

    /// What has come of it.
    pub fn finish(self) -> Seen {
        let Notes {
            warnings, audit, ..
        } = self.notes.into_inner();
        Seen {
            is_changed: self.is_changed,
            warnings,
            audit,
        }
    }
}

impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes")
            .field("operation", &self.operation)
            .field("resource", &self.resource.group_resource())
            .field("subresource", &self.subresource)
            .field("namespace", &self.namespace)
            .field("name", &self.shown_name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts who asks.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Kinds for Counted {
        fn at(&self, _: &str, _: &str, _: &str) -> Option<Arc<Resource>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            None
        }

        fn of_kind(&self, _: &Gvk) -> Option<Arc<Resource>> {
            None
        }

        fn alike(&self, _: &Resource) -> Vec<Arc<Resource>> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_alike_is_looked_up_once_for_all_webhooks() {
        let resource = ApiResource::new("example.org", "v1", "Thing", "things");
        let request = Request {
            user: &UserInfo::new("a", &[]),
            operation: Operation::Create,
            resource: &resource,
            subresource: "",
            namespace: "default",
            name: "",
            options: WriteOptions::default(),
            told: Told::default(),
        };
        let (kinds, mut object) = (Counted::default(), Value::Null);
        let attributes = request.about(&mut object, None);
        for _ in 0..300 {
            assert!(attributes.others_alike(&kinds).is_empty());
        }
        assert_eq!(kinds.0.into_inner(), 1);
    }

    #[test]
    fn what_is_put_on_record_has_a_key_of_two_parts_and_one_value() {
        let resource = ApiResource::new("", "v1", "ConfigMap", "configmaps");
        let user = UserInfo::master("test");
        let request = Request {
            user: &user,
            operation: Operation::Create,
            resource: &resource,
            subresource: "",
            namespace: "",
            name: "",
            options: WriteOptions::default(),
            told: Told::default(),
        };
        let mut object = Value::Null;
        let attributes = request.about(&mut object, None);
        let long = format!("a.example/{}", "k".repeat(64));
        for (key, value) in [
            ("a.example/k", "first"),
            ("a.example/k", "second"),
            ("a.example/other", "v"),
            ("k", "no prefix"),
            ("a/b/c", "three parts"),
            ("A_.example/k", "no subdomain"),
            ("a.example/k!", "no name"),
            (&long, "too long a name"),
        ] {
            attributes.annotate(key.to_owned(), value.to_owned());
        }
        let kept: Vec<_> = attributes.finish().audit.into_iter().collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let expect = [pair("a.example/k", "first"), pair("a.example/other", "v")];
        assert_eq!(kept, expect);
    }

    #[test]
    fn what_is_noted_has_a_bound() {
        let mut notes = Notes::default();
        assert!(notes.take(MOST_NOTED));
        assert!(!notes.take(1), "it is full");
        assert!(notes.take(0));
    }
}
