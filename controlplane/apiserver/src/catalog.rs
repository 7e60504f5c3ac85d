//! What is served, as one value.
//!
//! A catalog never changes: another takes its place, whole. A request takes the present one when it
//! comes and uses it to its end, so that all it does is about one state of things. Whoever serves a
//! resource, the way of a request to it is the same.
//!
//! `S` is what answers are made with, the state of a server, of which the catalog is a part.
//!
//! Not here: the built-in kinds that the server itself needs by name; they never change
//! (`coracle_registry::resource`).

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use coracle_admission::Kinds;
use coracle_api::{resource::Gvk, schema::Schema, status::Status};
use coracle_auth::user::UserInfo;
use coracle_registry::{
    api_resource::{ApiResource, Text},
    resource::Resource,
};
use http::HeaderMap;
use parking_lot::RwLock;
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::{
    limits::Requester,
    openapi,
    published::{Definitions, Published, Shown},
    query::Query,
    reply::Reply,
    request_info::ResourceRequest,
};

/// Who answers requests to a resource.
pub(crate) enum Serving<S> {
    /// The registry: what the kind stores, or shows of what another kind stores.
    Stored(Arc<Resource>),
    /// Code that makes the answer when it is asked: nothing is stored.
    Virtual(Arc<dyn Virtual<S>>),
}

/// A resource without a store, such as a review.
#[async_trait]
pub(crate) trait Virtual<S>: Send + Sync {
    /// Names and abilities.
    fn info(&self) -> &Arc<ApiResource>;

    /// What OpenAPI tells of it, if its kind is not in the schema table.
    fn definitions(&self) -> Option<Arc<Definitions>> {
        None
    }

    /// Answers a request, which is allowed and whose path exists.
    async fn serve(&self, call: Call<'_, S>) -> Result<Reply, Status>;
}

/// One request to one resource: `R`, where it is known that the registry has it.
pub(crate) struct Call<'a, S, R = ()> {
    pub(crate) server: &'a Arc<S>,
    pub(crate) user: &'a UserInfo,
    /// Whose share of the server's places and cores it is answered from.
    pub(crate) requester: Requester,
    pub(crate) resource: R,
    pub(crate) info: &'a ResourceRequest<'a>,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

impl<'a, S, R> Call<'a, S, R> {
    /// One of several requests that this one has in it.
    pub(crate) fn part<'b>(&'b self, info: &'b ResourceRequest<'b>, body: Bytes) -> Call<'b, S> {
        Call {
            server: self.server,
            user: self.user,
            requester: self.requester,
            resource: (),
            info,
            query: self.query,
            headers: self.headers,
            body,
        }
    }

    /// The same request, to this resource.
    pub(crate) fn to<T>(self, resource: T) -> Call<'a, S, T> {
        let Self {
            server,
            user,
            requester,
            info,
            query,
            headers,
            body,
            ..
        } = self;
        Call {
            server,
            user,
            requester,
            resource,
            info,
            query,
            headers,
            body,
        }
    }
}

impl<S> Serving<S> {
    /// Names and abilities.
    pub(crate) fn info(&self) -> &Arc<ApiResource> {
        match self {
            Self::Stored(resource) => &resource.info,
            Self::Virtual(resource) => resource.info(),
        }
    }

    /// As it is told of.
    pub(crate) fn shown(&self) -> Shown {
        let definitions = match self {
            Self::Stored(resource) => {
                let custom = resource.schema.as_ref().and_then(Schema::structural);
                custom.map(|schema| Arc::new(openapi::custom::definitions(&resource.info, schema)))
            }
            Self::Virtual(resource) => resource.definitions(),
        };
        Shown::new(Arc::clone(self.info()), definitions)
    }
}

impl<S> Clone for Serving<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Stored(resource) => Self::Stored(Arc::clone(resource)),
            Self::Virtual(resource) => Self::Virtual(Arc::clone(resource)),
        }
    }
}

/// Everything that is served at one time, immutable: a request takes it once.
pub(crate) struct Catalog<S> {
    /// In discovery's order.
    served: Vec<Serving<S>>,
    /// Places in `served`.
    by_plural: HashMap<Text, Vec<usize>>,
    /// Places of what is stored by its kind, and of what shows the same objects by where these are:
    /// asked for every policy and webhook.
    by_kind: HashMap<Text, Vec<usize>>,
    by_prefix: HashMap<String, Vec<usize>>,
    /// What is told of it.
    pub(crate) published: Published,
}

impl<S> Catalog<S> {
    pub(crate) fn new(served: Vec<Serving<S>>) -> Self {
        Self::after(None, served)
    }

    /// The one that comes after another.
    fn after(before: Option<&Self>, served: Vec<Serving<S>>) -> Self {
        let mut by_plural: HashMap<Text, Vec<usize>> = HashMap::new();
        let mut by_kind: HashMap<Text, Vec<usize>> = HashMap::new();
        let mut by_prefix: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, serving) in served.iter().enumerate() {
            let info = serving.info();
            let same = by_plural.entry(info.plural.clone());
            same.or_default().push(place);
            let Serving::Stored(resource) = serving else {
                continue;
            };
            by_kind.entry(info.kind.clone()).or_default().push(place);
            if resource.projected.is_none() {
                let same = by_prefix.entry(resource.prefix.clone());
                same.or_default().push(place);
            }
        }
        let before = before.map(|before| &before.published);
        let known = before.into_iter().flat_map(|before| &before.resources);
        let known: HashMap<*const ApiResource, &Shown> = known
            .map(|shown| (Arc::as_ptr(&shown.info), shown))
            .collect();
        let shown = served.iter().map(|serving| {
            let same = known.get(&Arc::as_ptr(serving.info()));
            same.map_or_else(|| serving.shown(), |same| Shown::clone(same))
        });
        let published = Published::new(shown.collect(), before);
        Self {
            served,
            by_plural,
            by_kind,
            by_prefix,
            published,
        }
    }

    /// Who serves `/apis/GROUP/VERSION/PLURAL`.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Serving<S>> {
        let places = self.by_plural.get(plural)?.iter();
        places
            .map(|place| &self.served[*place])
            .find(|serving| serving.info().is_at(group, version, plural))
    }

    /// Who serves a resource, version by version.
    pub(crate) fn versions_of<'a>(
        &'a self,
        group: &'a str,
        plural: &str,
    ) -> impl Iterator<Item = &'a Serving<S>> {
        let places = self.by_plural.get(plural).into_iter().flatten();
        places
            .map(|place| &self.served[*place])
            .filter(move |serving| serving.info().group == group)
    }

    /// Everything, in discovery's order.
    pub(crate) fn all(&self) -> &[Serving<S>] {
        &self.served
    }

    fn stored_at<'a>(
        &'a self,
        places: Option<&'a Vec<usize>>,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        let found = places.into_iter().flatten();
        found.filter_map(|place| match &self.served[*place] {
            Serving::Stored(resource) => Some(resource),
            Serving::Virtual(_) => None,
        })
    }

    /// The resources that the registry stores or shows.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.served.iter().filter_map(|serving| match serving {
            Serving::Stored(resource) => Some(resource),
            Serving::Virtual(_) => None,
        })
    }
}

impl<S> Kinds for Catalogs<S> {
    fn at(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        match self.now().find(group, version, plural)? {
            Serving::Stored(resource) => Some(Arc::clone(resource)),
            Serving::Virtual(_) => None,
        }
    }

    fn of_kind(&self, gvk: &Gvk) -> Option<Arc<Resource>> {
        let catalog = self.now();
        let mut found = catalog.stored_at(catalog.by_kind.get(&*gvk.kind));
        found.find(|one| one.gvk == *gvk).cloned()
    }

    fn alike(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let catalog = self.now();
        let found = catalog.stored_at(catalog.by_prefix.get(&resource.prefix));
        found.cloned().collect()
    }
}

/// Where the present catalog is.
pub(crate) struct Catalogs<S> {
    /// Held for a moment only.
    now: RwLock<Arc<Catalog<S>>>,
    /// Told of each that takes its place.
    changes: watch::Sender<()>,
    /// Held by who makes the next one.
    turn: Mutex<()>,
}

/// The right to make the next catalog, one at a time.
pub(crate) struct CatalogWriter<'a, S> {
    catalogs: &'a Catalogs<S>,
    _turn: MutexGuard<'a, ()>,
}

impl<S> Catalogs<S> {
    pub(crate) fn new(first: Catalog<S>) -> Self {
        Self {
            now: RwLock::new(Arc::new(first)),
            changes: watch::Sender::new(()),
            turn: Mutex::default(),
        }
    }

    /// The present one.
    pub(crate) fn now(&self) -> Arc<Catalog<S>> {
        Arc::clone(&self.now.read())
    }

    /// Tells of others that take its place from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Waits until nobody else makes another.
    pub(crate) async fn turn(&self) -> CatalogWriter<'_, S> {
        CatalogWriter {
            catalogs: self,
            _turn: self.turn.lock().await,
        }
    }
}

impl<S> CatalogWriter<'_, S> {
    /// Puts another catalog in the place of the present one.
    pub(crate) fn change(&self, change: impl FnOnce(Vec<Serving<S>>) -> Vec<Serving<S>>) {
        let now = self.catalogs.now();
        let next = Arc::new(Catalog::after(Some(&now), change(now.served.clone())));
        drop(now);
        let before = std::mem::replace(&mut *self.catalogs.now.write(), next);
        self.catalogs.changes.send_replace(());
        // Its documents, if nobody has it any more, outside of the lock.
        drop(before);
    }
}
