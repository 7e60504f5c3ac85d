//! Kinds that come at run time, and their one strategy: what a CustomResourceDefinition says of a
//! kind and its versions, without the definition itself.
//!
//! Each version that is served is a resource, with a schema and a strategy of its own; all have one
//! cache, which holds the storage version.
//!
//! Their schema prunes, defaults and checks; printer columns and selectable fields are paths into
//! the objects. `status` is apart if the kind has that subresource, and the generation counts
//! changes of all but it and the metadata.
//!
//! Not here: how objects are decoded (`coracle_api::decode::decode_along`), and who says which
//! kinds there are.
//!
//! Source:
//! `k8s.io/apiextensions-apiserver/pkg/registry/customresource/{strategy,status_strategy}.go`,
//! `pkg/registry/customresource/tableconvertor` at v1.37.

mod cell;
mod embedded;

use std::sync::Arc;

use coracle_api::{
    schema::{Schema, Structural},
    status::{FieldErrorKind, FieldErrors},
};
use serde_json::Value;

use self::cell::{cell, shown};
pub use crate::rules::RuleMetrics;
use crate::{
    api_resource::{ApiResource, Text},
    beside::beside,
    cells,
    converter::{CallConverter, Converted, Converter, ReviewVersion},
    json_path::JsonPath,
    lifecycle::{self, Lifecycle},
    open_definitions::definition::Definition,
    resource::{self, Resource},
    rules::LazyRules,
    storage_version::{StorageVersion, StoredVersions, Version},
    strategy::{ALL_METADATA, AnyStrategy, Column, ScalePaths, Strategy, Subresource},
    watch_cache::{ResourceCache, ResourceConfig, WatchCache, WatchCacheError},
};

/// A kind that comes at run time.
#[derive(Debug, Clone)]
pub struct CustomResource {
    /// Names and abilities. The version, its subresources and what is said of its deprecation are
    /// those of each version.
    pub info: ApiResource,
    /// The version in which the objects are stored.
    pub storage: CustomResourceVersion,
    /// The other versions.
    pub others: Vec<CustomResourceVersion>,
    /// How versions are turned into one another; `None` if only their names differ.
    pub conversion: Option<WebhookConversion>,
    /// What says so; `None` if new objects are held to none.
    pub definition: Option<Definition>,
    /// Where it is counted how long its rules take.
    pub rule_metrics: RuleMetrics,
}

/// A conversion webhook.
#[derive(Debug, Clone)]
pub struct WebhookConversion {
    /// The name of the definition, for logs and metrics.
    pub definition: String,
    /// Where it is: `spec.conversion.webhook.clientConfig`.
    pub client_config: Value,
    /// In which version it is asked.
    pub review: ReviewVersion,
}

/// A version of such a kind.
#[derive(Debug, Clone)]
pub struct CustomResourceVersion {
    /// Such as `v1`.
    pub name: Text,
    /// Whether clients are served it.
    pub served: bool,
    /// What clients are told with every answer; empty if it is not deprecated.
    pub deprecated: Text,
    /// Which subresources it has.
    pub subresources: Vec<Subresource>,
    /// Where its replicas are, if it has the subresource `scale`.
    pub scale: Option<ScalePaths>,
    /// What its objects look like.
    pub schema: Arc<Structural>,
    /// Columns besides the name; without any, the age.
    pub columns: Vec<PrinterColumn>,
    /// Such as `spec.colour`.
    pub selectable_fields: Vec<String>,
}

/// `additionalPrinterColumns`.
#[derive(Debug, Clone)]
pub struct PrinterColumn {
    /// Its head.
    pub column: Column,
    /// What it shows of an object.
    pub path: JsonPath,
}

impl CustomResource {
    /// The resources of the versions that are served, their objects loaded. They take the place of
    /// those with the same names, whose watches end. `caller` reaches the conversion webhook, if
    /// there is one.
    ///
    /// # Errors
    /// As [`WatchCache::register`].
    pub async fn register(
        self,
        cache: &WatchCache,
        caller: Option<Arc<dyn CallConverter>>,
    ) -> Result<Vec<Arc<Resource>>, WatchCacheError> {
        let (info, storage, others) = (&self.info, &self.storage, &self.others);
        let stored = storage.version(info);
        let fields = self.versions().flat_map(CustomResourceVersion::fields);
        let mut indexed: Vec<Text> = fields.collect();
        indexed.sort_unstable();
        indexed.dedup();
        let strategy = self.strategy(storage);
        let read_as = StoredVersions {
            storage: stored,
            others: others.iter().map(|other| other.version(info)).collect(),
        };
        // Which fields an object has is known when it is converted.
        let (convert, indexed) = match self.conversion.is_some() && caller.is_some() {
            true => (read_as.renew(), Arc::default()),
            false => (read_as.convert(), indexed.into()),
        };
        let config = ResourceConfig {
            convert: Some(convert),
            ..resource::cache_config(info, strategy, &indexed)
        };
        let cache = cache.register(config).await?;
        Ok(self.over(&cache, caller))
    }

    /// The same over objects that are loaded, for a kind that was so but for what can be done with
    /// it: who watches goes on.
    #[must_use]
    pub fn over(
        &self,
        cache: &Arc<ResourceCache>,
        caller: Option<Arc<dyn CallConverter>>,
    ) -> Vec<Arc<Resource>> {
        let (info, stored) = (&self.info, self.storage.version(&self.info));
        let served = self.versions().filter(|version| version.served);
        let versions: Arc<[Version]> = self.versions().map(|one| one.version(info)).collect();
        let managed = |resource| Resource {
            versions: Some(Arc::clone(&versions)),
            definition: self.definition.clone().map(Arc::new),
            ..resource
        };
        let Some(converter) = self.converter(caller) else {
            let resource = |version| self.resource(version, &stored, cache);
            return served.map(resource).map(managed).map(Arc::new).collect();
        };
        let as_itself =
            |version: &CustomResourceVersion| self.resource(version, &version.version(info), cache);
        let as_stored: Arc<[Arc<Resource>]> =
            self.versions().map(as_itself).map(Arc::new).collect();
        let converted = |version: &CustomResourceVersion| {
            let own = version.version(info);
            let converted = Converted::new(Arc::clone(&converter), own, stored.clone());
            Arc::new(Resource {
                converted: Some(Arc::new(converted)),
                as_stored: Arc::clone(&as_stored),
                ..managed(as_itself(version))
            })
        };
        served.map(converted).collect()
    }

    fn converter(&self, caller: Option<Arc<dyn CallConverter>>) -> Option<Arc<Converter>> {
        let conversion = self.conversion.as_ref()?;
        let names = self.versions();
        let names = names.map(|one| one.version(&self.info).api_version);
        let (review, names) = (conversion.review, names.collect());
        Some(Arc::new(Converter::new(caller?, review, names)))
    }

    fn strategy(&self, version: &CustomResourceVersion) -> AnyStrategy {
        let strategy = CustomResourceStrategy::new(version, &self.rule_metrics);
        AnyStrategy::Custom(Arc::new(strategy))
    }

    fn resource(
        &self,
        version: &CustomResourceVersion,
        stored: &Version,
        cache: &Arc<ResourceCache>,
    ) -> Resource {
        let (info, own) = (version.info(&self.info), version.version(&self.info));
        Resource {
            strategy: self.strategy(version),
            gvk: info.gvk(),
            group_resource: info.group_resource(),
            prefix: info.prefix(),
            schema: Some(Schema::Structural(Arc::clone(&version.schema))),
            selectable_fields: version.fields().collect(),
            info: Arc::new(info),
            cache: Arc::clone(cache),
            view: None,
            projected: None,
            converted: None,
            versions: None,
            definition: None,
            as_stored: Arc::default(),
            stored_as: (own.api_version != stored.api_version).then(|| StorageVersion {
                own,
                stored: stored.clone(),
            }),
        }
    }

    fn versions(&self) -> impl Iterator<Item = &CustomResourceVersion> {
        std::iter::once(&self.storage).chain(&self.others)
    }
}

impl CustomResourceVersion {
    fn fields(&self) -> impl Iterator<Item = Text> {
        self.selectable_fields.iter().cloned().map(Text::Owned)
    }

    /// Names and abilities of a kind in this version.
    fn info(&self, kind: &ApiResource) -> ApiResource {
        ApiResource {
            version: self.name.clone(),
            subresources: self.subresources.clone().into(),
            deprecated: self.deprecated.clone(),
            ..kind.clone()
        }
    }

    fn version(&self, kind: &ApiResource) -> Version {
        Version {
            api_version: self.info(kind).gvk().api_version(),
            schema: Arc::clone(&self.schema),
        }
    }
}

/// What is so wrong with an object that rules in CEL are not asked.
const UNRULED: [FieldErrorKind; 5] = [
    FieldErrorKind::NotSupported,
    FieldErrorKind::Required,
    FieldErrorKind::TooLong,
    FieldErrorKind::TooMany,
    FieldErrorKind::TypeInvalid,
];

/// Looks at values that are a few milliseconds of a thread that others wait for.
const MOST_AT_HAND: usize = 20_000;

/// Defaults, validation and columns of a custom kind, by its structural schema.
struct CustomResourceStrategy {
    schema: Arc<Structural>,
    rules: LazyRules,
    has_status: bool,
    scale: Option<ScalePaths>,
    columns: Vec<Column>,
    /// Of each column but the first; `None` for the age.
    paths: Vec<Option<JsonPath>>,
}

impl CustomResourceStrategy {
    fn new(version: &CustomResourceVersion, rule_metrics: &RuleMetrics) -> Self {
        let mut columns = vec![cells::NAME];
        let mut paths = Vec::new();
        for PrinterColumn { column, path } in &version.columns {
            columns.push(column.clone());
            paths.push(Some(path.clone()));
        }
        if paths.is_empty() {
            columns.push(cells::AGE);
            paths.push(None);
        }
        let has_status = version.subresources.contains(&Subresource::Status);
        Self {
            schema: Arc::clone(&version.schema),
            rules: LazyRules::new(rule_metrics),
            has_status,
            scale: version.scale.clone(),
            columns,
            paths,
        }
    }

    /// Whether writes of the object itself leave a member alone, or do not count.
    fn is_apart(&self, member: &str) -> bool {
        member == "metadata" || (self.has_status && member == "status")
    }

    /// Checks an object, beside the others if that takes long.
    fn in_its_place(&self, object: &Value, check: impl FnOnce() -> FieldErrors) -> FieldErrors {
        match self.schema.labour(object) > MOST_AT_HAND {
            true => beside(check),
            false => check(),
        }
    }

    /// With what is wrong with objects within, and what breaks rules in CEL, which are about
    /// objects of the right form alone.
    fn ruled(&self, mut errors: FieldErrors, new: &Value, old: Option<&Value>) -> FieldErrors {
        errors.extend(embedded::validate(&self.schema, new));
        let Some(rules) = self.rules.get(&self.schema) else {
            return errors;
        };
        if errors.iter().any(|error| UNRULED.contains(&error.kind)) {
            let what = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.invalid("<nil>", &Value::Null, what);
        } else {
            errors.extend(rules.check(new, old));
        }
        errors
    }
}

impl Strategy for CustomResourceStrategy {
    fn default(&self, object: &mut Value) {
        self.schema.default(object);
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.has_status {
            true => Lifecycle::GenerationAndStatus,
            false => Lifecycle::Generation,
        }
    }

    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
            return true;
        };
        let differs = |(member, value): (&String, &Value)| {
            !self.is_apart(member) && old.get(member) != Some(value)
        };
        let is_gone = |member: &String| !self.is_apart(member) && !new.contains_key(member);
        new.iter().any(differs) || old.keys().any(is_gone)
    }

    fn prepare_for_create(&self, object: &mut Value) {
        lifecycle::create(self, object);
        if self.has_status
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
    }

    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let errors = self.in_its_place(object, || self.schema.validate(object));
        self.ruled(errors, object, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let errors = self.in_its_place(new, || self.schema.validate_update(new, old));
        self.ruled(errors, new, Some(old))
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        self.validate_update(new, old)
    }

    fn scale_paths(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let found = path
            .split('.')
            .try_fold(object, |value, member| value.get(member));
        found.map(shown).unwrap_or_default()
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let cell = |(column, path): (&Column, &Option<JsonPath>)| match path {
            Some(path) => cell(column, path.find(object), now_secs),
            None => cells::age(object, now_secs),
        };
        let more = self.columns.iter().skip(1).zip(&self.paths).map(cell);
        std::iter::once(cells::name(object)).chain(more).collect()
    }
}

#[cfg(test)]
mod tests;
