//! What a kind adds to the generic registry: its names, defaults, validation and columns.
//!
//! A strategy is pure: it sees objects as JSON values and touches neither store nor network. State
//! that a create needs (service addresses, node ports) is reserved by the registry's allocators,
//! not here. The truth of field structure is `coracle_api::schema`, never a strategy.
//!
//! Source: `k8s.io/apiserver/pkg/registry/rest` and `pkg/registry/<group>/<kind>/strategy.go` at
//! v1.37.

mod subresource;

use std::{borrow::Cow, ops::Deref, sync::Arc};

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::{
    cells,
    lifecycle::{self, Lifecycle},
};

pub use self::subresource::{ScalePaths, Subresource};

/// A text that is a constant of this program or came at run time.
pub type Text = Cow<'static, str>;

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `/api/v1/namespaces/NS/pods`.
    Namespaced,
    /// `/api/v1/nodes`.
    Cluster,
}

/// The names and abilities of a built-in kind as its file declares them: constants. What is served
/// has them as [`ApiResource`](crate::api_resource::ApiResource).
#[derive(Debug, Clone, Copy)]
pub struct ResourceInfo {
    /// API group; empty for core.
    pub group: &'static str,
    /// Version, such as `v1`.
    pub version: &'static str,
    /// Kind, such as `Pod`.
    pub kind: &'static str,
    /// Resource name in URLs, such as `pods`.
    pub plural: &'static str,
    /// Such as `pod`.
    pub singular: &'static str,
    /// Such as `po`.
    pub short_names: &'static [&'static str],
    /// Such as `all`.
    pub categories: &'static [&'static str],
    /// Namespaced or not.
    pub scope: Scope,
    /// Which subresources exist.
    pub subresources: &'static [Subresource],
    /// Verbs of the main resource, in discovery's order. [`VERBS_ALL`] for nearly every kind;
    /// reviews have `create` alone.
    pub verbs: &'static [&'static str],
    /// Whether PUT makes an object that is not there.
    pub create_on_update: bool,
    /// Whether PUT may leave `resourceVersion` out and then overwrites whatever there is.
    pub unconditional_update: bool,
    /// What clients of a kind that is going away are told with every answer; empty for the others.
    pub deprecated: &'static str,
}

impl ResourceInfo {
    /// What is the same for most kinds of a group: namespaced, every verb, no subresources. The
    /// names are for the kind to fill in.
    #[must_use]
    pub const fn in_group(group: &'static str, version: &'static str) -> Self {
        Self {
            group,
            version,
            kind: "",
            plural: "",
            singular: "",
            short_names: &[],
            categories: &[],
            scope: Scope::Namespaced,
            subresources: &[],
            verbs: VERBS_ALL,
            create_on_update: false,
            unconditional_update: true,
            deprecated: "",
        }
    }
}

/// The verbs of an ordinary resource.
pub const VERBS_ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// What clients write in `metadata` besides the object's identity.
///
/// Source: `k8s.io/apimachinery/pkg/apis/meta/v1/helpers.go`, `ResetObjectMetaForStatus` at v1.37.
pub const ALL_METADATA: &[&str] = &["annotations", "finalizers", "labels", "ownerReferences"];

/// A column of the kind's table, as in `metav1.TableColumnDefinition`.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading as kubectl prints it upper-cased, such as `Ready`.
    pub name: Text,
    /// `string`, `integer`, `date`...
    pub kind: Text,
    /// `name` for the first column, else empty.
    pub format: Text,
    /// What it shows.
    pub description: Text,
    /// 0 is always shown; 1 only with `-o wide`.
    pub priority: i32,
}

static DEFAULT_COLUMNS: [Column; 2] = [cells::NAME, cells::AGE];

/// How a kind answers a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Removed at once (finalizers permitting).
    Immediate,
    /// Kept with `deletionTimestamp` until its owner confirms (a Pod on a node): the seconds of
    /// grace.
    Graceful(i64),
}

/// What becomes of the dependents of an object if neither who deletes it nor its finalizers say.
///
/// Source: `DefaultGarbageCollectionPolicy` in `pkg/registry/<group>/<kind>/strategy.go` at v1.37.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// Collected after it.
    Deleted,
    /// Left alone, as they were before there was a garbage collector.
    Orphaned,
}

/// The objects of another kind in other words: another version of it, or another group. Nothing is
/// stored twice.
///
/// A client of the view sends and gets objects of the view's kind; they are defaulted and checked
/// as such, then as the stored kind. Both conversions leave `metadata` in place and need not care
/// about `apiVersion` and `kind`.
pub struct View {
    /// The kind that stores the objects.
    pub of: &'static dyn BuiltIn,
    /// How they are turned into one another.
    pub conversion: Conversion,
}

/// How objects of a view and of the kind that stores them are turned into one another.
#[derive(Clone, Copy)]
pub struct Conversion {
    /// Into the form of the stored kind.
    pub to_stored: fn(Value) -> Value,
    /// Out of the form of the stored kind.
    pub from_stored: fn(Value) -> Value,
    /// What the stored kind calls a selectable field of the view.
    pub stored_field: fn(&str) -> &str,
}

/// A kind that is built in: a strategy, and what it is called. All of this is constant.
pub trait BuiltIn: Strategy {
    /// Names and abilities.
    fn resource(&self) -> &'static ResourceInfo;

    /// Whose objects this kind shows, if it stores none of its own. Such a kind needs no
    /// `prepare_*` hooks.
    fn view(&self) -> Option<&'static View> {
        None
    }

    /// Fields, besides `metadata.name` and `metadata.namespace`, that a field selector may name.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }
}

/// A kind that shows some of what the objects of another kind hold, to those who may not see the
/// rest. Its objects are read and never written: no verb of it writes.
///
/// Nothing is stored. Metadata is projected as well, and an object has the revision of the one that
/// it is of.
pub trait Projection: BuiltIn {
    /// The kind that stores the objects. Selectable fields are those of that kind which have the
    /// same names.
    fn of(&self) -> &'static dyn BuiltIn;

    /// Out of an encoded object of that kind an encoded object of this one, laid out as
    /// [`stored`](crate::stored) has it. An allow list: what that kind comes to have later is not
    /// shown.
    ///
    /// # Errors
    /// What is stored is no object of that kind.
    fn project(&self, json: &[u8]) -> serde_json::Result<Vec<u8>>;

    /// What its objects look like besides metadata: a structural schema, for OpenAPI.
    fn openapi_schema(&self) -> Value;
}

/// The strategy of a resource, wherever it comes from. Behaves as what it holds.
#[derive(Clone)]
pub enum AnyStrategy {
    /// Of a built-in kind.
    BuiltIn(&'static dyn Strategy),
    /// Of a kind that came at run time and goes with the last who has it.
    Custom(Arc<dyn Strategy>),
}

impl From<&'static dyn BuiltIn> for AnyStrategy {
    fn from(kind: &'static dyn BuiltIn) -> Self {
        Self::BuiltIn(kind)
    }
}

impl Deref for AnyStrategy {
    type Target = dyn Strategy;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(strategy) => *strategy,
            Self::Custom(strategy) => &**strategy,
        }
    }
}

/// What a kind adds to the generic registry. Every hook has the neutral default.
pub trait Strategy: Send + Sync + 'static {
    /// Fills in defaults, on every write and before validation. Idempotent.
    fn default(&self, _object: &mut Value) {}

    /// Which of `status` and `metadata.generation` the registry keeps.
    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Plain
    }

    /// The `status` of a new object, for kinds with one.
    fn first_status(&self, _object: &Value) -> Value {
        json!({})
    }

    /// Whether an update makes work for a controller, so that `generation` counts it.
    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        new.get("spec") != old.get("spec")
    }

    /// Clears what a client may not set on create (status, for kinds with one), sets `generation`
    /// and the like.
    fn prepare_for_create(&self, object: &mut Value) {
        lifecycle::create(self, object);
    }

    /// Restores what an update of the main resource may not change (status), bumps `generation` if
    /// spec changed.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        lifecycle::update(self, new, old);
    }

    /// Fields of `metadata` that an update of `/status` leaves alone; it may change the others.
    /// [`ALL_METADATA`] for the kinds that upstream made late.
    fn status_keeps(&self) -> &'static [&'static str] {
        &[]
    }

    /// Restores what an update of `/status` may not change. Everything but `metadata` and `status`
    /// comes from `old`, and so does what [`Strategy::status_keeps`] names; done by the registry
    /// before this hook.
    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// Checks what holds of an object at any time. Metadata common to all kinds is checked by the
    /// registry.
    fn validate(&self, _object: &Value) -> FieldErrors {
        FieldErrors::default()
    }

    /// Checks a new object: what [`Strategy::validate`] checks, and what only others may add later.
    fn validate_create(&self, object: &Value) -> FieldErrors {
        self.validate(object)
    }

    /// Checks an update: immutable fields, then what [`Strategy::validate`] checks.
    fn validate_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        self.validate(new)
    }

    /// Checks an update of `/status`.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> FieldErrors {
        FieldErrors::default()
    }

    /// Checks `metadata.name`: the reason it is bad, in upstream's words. A DNS subdomain by
    /// default.
    fn name_error(&self, name: &str) -> Option<String> {
        coracle_api::name::dns_subdomain_error(name)
    }

    /// The value of one of the fields that a field selector may name: see
    /// [`BuiltIn::selectable_fields`].
    fn field(&self, _object: &Value, _path: &str) -> String {
        String::new()
    }

    /// How a delete with the given grace (`None`: not said) proceeds on this object.
    fn deletion(&self, _object: &Value, _grace_secs: Option<i64>) -> Deletion {
        Deletion::Immediate
    }

    /// What becomes of the dependents where nobody says.
    fn dependents(&self) -> Dependents {
        Dependents::Deleted
    }

    /// What the object waits for before it goes, besides `metadata.finalizers`.
    fn pending_finalizers<'a>(&self, _object: &'a Value) -> &'a [Value] {
        &[]
    }

    /// Changes an object that a delete marks for the first time.
    fn prepare_for_deletion(&self, _object: &mut Value) {}

    /// Whether writing this is to go on when the disk is full, as others take its absence for a
    /// death.
    fn may_use_disk_reserve(&self, _object: &Value) -> bool {
        false
    }

    /// Warnings about what [`Strategy::prepare_for_create`] puts elsewhere: asked before that.
    fn warnings_on_create(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Warnings for the client, in upstream's words, on a create or update.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Where `scale` finds what it shows, if not where built-in kinds have it.
    fn scale_paths(&self) -> Option<&ScalePaths> {
        None
    }

    /// The table's columns; the first is always `Name`.
    fn columns(&self) -> &[Column] {
        &DEFAULT_COLUMNS
    }

    /// The cells of one row, as many as [`Strategy::columns`]. `now_secs` is the Unix time, for
    /// ages.
    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), cells::age(object, now_secs)]
    }

    /// The row's `conditions` (`metav1.TableRowCondition`), such as a finished Pod's `Completed`.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }
}
