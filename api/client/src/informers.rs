//! The informers of one process: whoever asks for a kind shares the one informer of it, made when
//! it is first asked for.
//!
//! What is kept of a kind is said here once, before anybody asks ([`Informers::trim`]). A reader
//! that needs some objects alone names them ([`Source`]) and shares an informer with those who name
//! the same.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt::{self, Debug},
};

use coracle_telemetry::Tasks;
use futures::future::{BoxFuture, join_all, pending};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::ObjectMeta};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Change,
    informer::{Informer, Selection},
};

/// What an informer can follow: a type for objects of one kind.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static> Kind
    for K
{
}

/// Which objects of a kind.
#[derive(Clone)]
pub struct Source<K> {
    /// Empty for all.
    namespace: &'static str,
    selection: Selection,
    api: fn(Client, &str) -> Api<K>,
}

impl<K: Kind> Source<K> {
    /// Every object of the kind.
    #[must_use]
    pub fn all() -> Self {
        Self {
            namespace: "",
            selection: Selection::all(),
            api: |client, _| Api::all(client),
        }
    }

    /// Those of one namespace.
    #[must_use]
    pub fn in_namespace(namespace: &'static str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self {
            namespace,
            selection: Selection::all(),
            api: Api::namespaced,
        }
    }

    /// Of these the ones with these fields.
    #[must_use]
    pub fn fields(mut self, fields: impl Into<String>) -> Self {
        self.selection.fields = fields.into();
        self
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.namespace, &self.selection) == (other.namespace, &other.selection)
    }
}

impl<K> Debug for Source<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            selection,
            ..
        } = self;
        f.debug_struct("Source")
            .field("namespace", namespace)
            .field("selection", selection)
            .finish_non_exhaustive()
    }
}

/// Makes what drops the parts of an object that nobody reads; one an informer, for it may remember
/// what it has seen.
type MakeTrim<K> = Box<dyn Fn() -> Box<dyn FnMut(&mut K) + Send> + Send>;

/// Makes an informer leave objects out.
type Restrict<K> = Box<dyn Fn(Informer<K>) -> Informer<K> + Send>;

/// See the module.
pub struct Informers {
    client: Client,
    /// [`MakeTrim`] and [`Restrict`] of each kind, by their own type.
    rules: HashMap<TypeId, Box<dyn Any + Send>>,
    shared: Vec<Box<dyn Shared>>,
}

impl Informers {
    /// None yet. All will watch through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            rules: HashMap::new(),
            shared: Vec::new(),
        }
    }

    /// Says what is dropped of each object of a kind, in every informer of it that is asked for
    /// from now on.
    #[must_use]
    pub fn trim<K: Kind>(self, trim: impl FnMut(&mut K) + Clone + Send + 'static) -> Self {
        let make: MakeTrim<K> = Box::new(move || Box::new(trim.clone()));
        self.rule(make)
    }

    /// Takes objects of a kind that do not pass `keep` as not there, in every informer of it that
    /// is asked for from now on: a selection that the server cannot make.
    #[must_use]
    pub fn only<K: Kind>(self, keep: impl FnMut(&K) -> bool + Clone + Send + 'static) -> Self {
        let restrict: Restrict<K> = Box::new(move |informer| informer.only(keep.clone()));
        self.rule(restrict)
    }

    fn rule<R: Send + 'static>(mut self, rule: R) -> Self {
        self.rules.insert(TypeId::of::<R>(), Box::new(rule));
        self
    }

    fn rule_of<R: 'static>(&self) -> Option<&R> {
        self.rules.get(&TypeId::of::<R>())?.downcast_ref()
    }

    /// The informer of every object of a kind.
    pub fn of<K: Kind>(&mut self) -> &mut Informer<K> {
        self.some(&Source::all())
    }

    /// The informer of some objects of a kind.
    pub fn some<K: Kind>(&mut self, source: &Source<K>) -> &mut Informer<K> {
        let known = self.shared.iter().position(|shared| {
            let shared: &dyn Any = &**shared;
            shared
                .downcast_ref::<Of<K>>()
                .is_some_and(|shared| shared.source.is_same(source))
        });
        let at = known.unwrap_or_else(|| {
            self.shared.push(Box::new(self.make(source)));
            self.shared.len() - 1
        });
        let shared: &mut dyn Any = &mut *self.shared[at];
        let Some(of_kind) = shared.downcast_mut::<Of<K>>() else {
            unreachable!("it was found by its type")
        };
        &mut of_kind.informer
    }

    fn make<K: Kind>(&self, source: &Source<K>) -> Of<K> {
        let trim = self
            .rule_of::<MakeTrim<K>>()
            .map_or_else(|| Box::new(|_: &mut K| {}) as _, |make| make());
        let api = (source.api)(self.client.clone(), source.namespace);
        let informer = Informer::new(api, source.selection.clone(), trim);
        let restrict = self.rule_of::<Restrict<K>>();
        let is_whole = source.is_same(&Source::all()) && restrict.is_none();
        let informer = if let Some(restrict) = restrict {
            restrict(informer)
        } else {
            informer
        };
        Of {
            informer,
            source: source.clone(),
            is_whole,
        }
    }

    /// The informers that show every object of their kind, for who looks at all kinds alike.
    pub fn whole(&mut self) -> impl Iterator<Item = Whole<'_>> {
        self.shared
            .iter_mut()
            .filter(|shared| shared.is_whole())
            .map(|shared| Whole(&mut **shared))
    }

    /// Starts all of them. What is returned ends once each has listed what there is; never, if one
    /// of them dies.
    pub fn spawn(self, tasks: &mut Tasks) -> impl Future<Output = ()> + use<> {
        let synced: Vec<_> = self.shared.iter().map(|shared| shared.synced()).collect();
        for shared in self.shared {
            tasks.add(shared.name(), shared.run(tasks.stop()));
        }
        listed(synced)
    }
}

impl Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.shared.iter().map(|shared| shared.name()))
            .finish()
    }
}

/// Returns once each of the informers has listed what there is; never, if one of them has died:
/// what belongs to it is about to end.
pub(crate) async fn listed(synced: Vec<watch::Receiver<bool>>) {
    join_all(synced.into_iter().map(|mut synced| async move {
        if synced.wait_for(|is_done| *is_done).await.is_err() {
            pending::<()>().await;
        }
    }))
    .await;
}

/// An informer of every object of its kind.
pub struct Whole<'a>(&'a mut dyn Shared);

impl Whole<'_> {
    /// The kind's group, empty for the core's, and its name.
    #[must_use]
    pub fn group_kind(&self) -> (String, String) {
        self.0.group_kind()
    }

    /// Becomes true once the first list is in the cache and its handlers have run.
    #[must_use]
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.0.synced()
    }

    /// Runs `handler` on the metadata of each object that changes, and whether the object is gone.
    pub fn on_change(&mut self, handler: impl Fn(&ObjectMeta, bool) + Send + Sync + 'static) {
        self.0.on_change(Box::new(handler));
    }
}

impl Debug for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Whole").field(&self.0.name()).finish()
    }
}

/// Gets the metadata of an object that has changed, and whether it is gone.
type OnMeta = Box<dyn Fn(&ObjectMeta, bool) + Send + Sync>;

/// An informer whatever its kind.
trait Shared: Any + Send {
    fn name(&self) -> &'static str;
    fn group_kind(&self) -> (String, String);
    fn is_whole(&self) -> bool;
    fn synced(&self) -> watch::Receiver<bool>;
    fn on_change(&mut self, handler: OnMeta);
    fn run(self: Box<Self>, shutdown: CancellationToken) -> BoxFuture<'static, ()>;
}

struct Of<K: 'static> {
    informer: Informer<K>,
    source: Source<K>,
    is_whole: bool,
}

impl<K: Kind> Shared for Of<K> {
    fn name(&self) -> &'static str {
        self.informer.name()
    }

    fn group_kind(&self) -> (String, String) {
        (K::group(&()).into_owned(), K::kind(&()).into_owned())
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn synced(&self) -> watch::Receiver<bool> {
        self.informer.synced()
    }

    fn on_change(&mut self, handler: OnMeta) {
        self.informer.on_change(move |change| {
            handler(change.latest().meta(), matches!(change, Change::Deleted(_)));
        });
    }

    fn run(self: Box<Self>, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.informer.run(shutdown))
    }
}
