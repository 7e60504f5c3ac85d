//! GET of a collection. Objects are sent as the cache holds them, never encoded again, or written
//! anew one by one as the connection takes them.

use std::{borrow::Cow, sync::Arc};

use coracle_api::{selector::FieldSelector, status::Status};
use coracle_registry::{
    resource::Resource,
    store::cache_status,
    watch_cache::{Continue, Entry, ListAt, ListRequest, ListResult, Selection, WatchCacheError},
};
use coracle_store::Revision;
use http::StatusCode;

use super::{Call, Shape, converted::Texts, now_secs};
use crate::{
    body::{
        Body, List,
        list::{ItemForm, Items},
    },
    limits::Permit,
    list_options::{self, ListOptions, ListVerb, Token, Version},
    reply::Reply,
    table::{self, IncludeObject, ListMeta, TableOptions, accept::Form},
};

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
deleted between the time the first chunk was returned and now may show up in the list.";

/// Serves the collection.
pub(crate) async fn list(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let options = ListOptions::parse(call.query, ListVerb::List)?;
    let selection = list_options::selection(call.resource, call.info, call.query)?;
    let found = match read(call, &options, selection).await {
        Err(WatchCacheError::TooOld { .. }) if options.token.is_some() => {
            return Ok(continue_expired(&options));
        }
        result => result.map_err(cache_status)?,
    };
    let mut place = Place::of(call.resource, &found.result);
    let fields = list_options::converted_fields(call.resource, call.query)?;
    if fields.is_some() {
        place.remaining = None;
    }
    let objects = objects(call, shape, found, fields.as_ref()).await?;
    Ok(Reply::json(list_of(call, shape, &place.meta(), objects)))
}

/// Objects of a list.
pub(crate) struct Objects {
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Of what a webhook has converted, the texts.
    texts: Option<Texts>,
    room: Option<Permit>,
}

/// What was found as it is to be shown, with the room that it takes.
pub(crate) async fn objects(
    call: &Call<'_>,
    shape: Shape,
    found: Found,
    fields: Option<&FieldSelector>,
) -> Result<Objects, Status> {
    let texts = Texts::of(call.resource, shape.form, fields, &found.result.entries).await?;
    let room = found.room(call, texts.as_ref().map_or(0, Texts::bytes))?;
    let mut entries = found.result.entries;
    if let Some(texts) = texts.as_ref().filter(|_| fields.is_some()) {
        entries.retain(|entry| texts.has(entry));
    }
    Ok(Objects {
        entries,
        texts,
        room,
    })
}

/// A list of objects, as the client wants them.
pub(crate) fn list_of(
    call: &Call<'_>,
    shape: Shape,
    meta: &ListMeta<'_>,
    objects: Objects,
) -> Body {
    let resource = call.resource;
    let Objects {
        entries,
        texts,
        room,
    } = objects;
    let (head, name) = match shape.form {
        Form::Object => {
            let head =
                table::list_head(&resource.info.list_kind, &resource.gvk.api_version(), meta);
            (head, "items")
        }
        Form::Table(version) => {
            let options = TableOptions {
                version,
                include: shape.include,
                with_columns: true,
                now_secs: now_secs(),
            };
            (table::head(&*resource.strategy, options, meta), "rows")
        }
        Form::PartialObjectMetadata(version) => {
            let kind = "PartialObjectMetadataList";
            (table::list_head(kind, version.api_version(), meta), "items")
        }
    };
    Body::List(Box::new(List {
        head,
        name,
        items: Items::new(entries, item_form(resource, shape, texts), room),
        turns: call.server.limits.turns(call.requester),
    }))
}

/// How each object is written. All but those that are sent as the cache has them are decoded.
fn item_form(resource: &Arc<Resource>, shape: Shape, texts: Option<Texts>) -> ItemForm {
    let resource = Arc::clone(resource);
    if let Some(texts) = texts {
        return converted_form(resource, shape, texts);
    }
    let as_stored = resource.is_shown_as_stored() || resource.converted.is_some();
    ItemForm::Made(match shape.form {
        Form::Object if as_stored => return ItemForm::Stored,
        Form::Object => Box::new(move |entry, out| {
            out.extend_from_slice(&resource.shown_entry(entry));
        }),
        Form::Table(version) => {
            let options = TableOptions {
                version,
                include: shape.include,
                with_columns: false,
                now_secs: now_secs(),
            };
            Box::new(move |entry, out| {
                let strategy = &*resource.strategy;
                if as_stored && shape.include == IncludeObject::None {
                    let read = entry.unmanaged();
                    return table::append_row(out, strategy, &read, &read, options);
                }
                let shown = resource.shown_entry(entry);
                let read = if as_stored {
                    entry.unmanaged()
                } else {
                    Cow::Borrowed(&shown[..])
                };
                table::append_row(out, strategy, &read, &shown, options);
            })
        }
        Form::PartialObjectMetadata(version) => Box::new(move |entry, out| {
            let shown = resource.shown_entry(entry);
            table::append_partial(out, &shown, version);
        }),
    })
}

/// The same for what a webhook has converted.
fn converted_form(resource: Arc<Resource>, shape: Shape, texts: Texts) -> ItemForm {
    ItemForm::Made(match shape.form {
        Form::Object => Box::new(move |entry, out| out.extend_from_slice(&texts.get(entry))),
        Form::Table(version) => {
            let options = TableOptions {
                version,
                include: shape.include,
                with_columns: false,
                now_secs: now_secs(),
            };
            Box::new(move |entry, out| {
                let text = texts.get(entry);
                table::append_row(out, &*resource.strategy, &text, &text, options);
            })
        }
        Form::PartialObjectMetadata(version) => {
            Box::new(move |entry, out| table::append_partial(out, &texts.get(entry), version))
        }
    })
}

/// Which state a list is of, and where it goes on.
struct Place {
    revision: String,
    token: Option<String>,
    remaining: Option<usize>,
}

impl Place {
    fn of(resource: &Resource, result: &ListResult) -> Self {
        let token = |next: &Continue| {
            let start = next.after.strip_prefix(&resource.prefix);
            Token::new(
                i64::try_from(next.revision.0).unwrap_or(i64::MAX),
                start.unwrap_or(&next.after),
                next.remaining,
            )
        };
        Self {
            revision: result.revision.to_string(),
            token: result.next.as_ref().map(|next| token(next).encode()),
            remaining: result.next.as_ref().and_then(|next| next.remaining),
        }
    }

    fn meta(&self) -> ListMeta<'_> {
        ListMeta {
            resource_version: &self.revision,
            continue_token: self.token.as_deref(),
            remaining_item_count: self.remaining.map(|count| count as u64),
        }
    }
}

/// What a collection request selects.
pub(crate) struct Found {
    pub(crate) result: ListResult,
    /// The cache has forgotten it, and nobody else has these objects.
    is_copy: bool,
}

impl Found {
    /// The room that it takes, with so many bytes beside it, which is to be kept as long as the
    /// objects are.
    ///
    /// # Errors
    /// 429 when the client has taken too little of what it asked for before.
    fn room(&self, call: &Call<'_>, beside: usize) -> Result<Option<Permit>, Status> {
        let objects = self.result.entries.iter().filter(|_| self.is_copy);
        let bytes: usize = objects.map(|object| object.json_len()).sum();
        if bytes + beside == 0 {
            return Ok(None);
        }
        call.server.limits.copy(call.requester, bytes + beside)
    }
}

/// What a collection request selects, also for deletecollection.
pub(crate) async fn read(
    call: &Call<'_>,
    options: &ListOptions,
    selection: Selection,
) -> Result<Found, WatchCacheError> {
    let cache = &call.server.store.cache;
    let mut request = ListRequest {
        limit: options.limit,
        ..ListRequest::all(selection)
    };
    match (&options.token, options.version) {
        (Some(token), _) => {
            request.after = Some(format!("{}{}", call.resource.prefix, token.start));
            match u64::try_from(token.rv) {
                Ok(revision) => {
                    // Another server may have given it, which was further. Or nobody.
                    cache.wait_for_written(Revision(revision)).await?;
                    request.at = ListAt::Exact(Revision(revision));
                    request.remaining = token.remaining;
                }
                Err(_) => cache.catch_up().await?,
            }
        }
        (None, Version::Newest) => cache.catch_up().await?,
        (None, Version::Any) => {}
        (None, Version::NotOlderThan(revision)) => cache.wait_for(revision).await?,
        (None, Version::Exact(revision)) => {
            cache.wait_for(revision).await?;
            request.at = ListAt::Exact(revision);
        }
    }
    match (call.resource.cache.list(&request), request.at) {
        (Err(WatchCacheError::TooOld { .. }), ListAt::Exact(_)) => {}
        (result, _) => {
            return Ok(Found {
                result: result?,
                is_copy: false,
            });
        }
    }
    // Who has a token takes another one, whether it sets a limit or not.
    if options.token.is_some() {
        request.limit.get_or_insert(usize::MAX);
    }
    let result = cache.list(&call.resource.cache, &request).await?;
    Ok(Found {
        result,
        is_copy: true,
    })
}

/// 410 with a token that goes on in the present state.
fn continue_expired(options: &ListOptions) -> Reply {
    let mut status = Status::expired(CONTINUE_EXPIRED).to_json();
    if let Some(token) = &options.token {
        let token = Token::new(-1, &token.start, None).encode();
        status["metadata"] = serde_json::json!({"continue": token});
    }
    Reply::value(&status).with_status(StatusCode::GONE)
}
