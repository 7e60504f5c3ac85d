//! The verbs of resources: from a parsed request to the registry and back, one verb a file.
//!
//! Authorization has been done. Kinds are named only where a verb means another thing for
//! them: what a namespace's deletion, a pod's grace period or a token Secret asks for.

pub(crate) mod apply;
mod converted;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;

use bytes::Bytes;
use coracle_admission::{Operation, Request, Told};
use coracle_api::{
    decode::{self, ContentType, Decoded, FieldValidation},
    resource::{GroupResource, Gvk},
    status::{FieldErrors, Status},
};
use coracle_registry::{
    managed_fields::FieldManager,
    part::Part,
    resource::Resource,
    store::{WriteOptions, Written, update::UpdateTarget},
    stored,
    strategy::Strategy,
};
use http::{HeaderMap, StatusCode, header};

use crate::{
    catalog, encoding,
    limits::BODY_LIMIT,
    reply::Reply,
    state::State,
    table::{
        self, IncludeObject, ListMeta, TableOptions,
        accept::{self, Form},
    },
};

/// Most letters of a field manager's name.
const MANAGER_CHARS: usize = 128;

/// One request to a resource that the registry has.
pub(crate) type Call<'a> = catalog::Call<'a, State, &'a Arc<Resource>>;

/// How the client wants objects shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) include: IncludeObject,
}

impl<R> catalog::Call<'_, State, R> {
    /// What every write may be told.
    pub(crate) fn write_options(&self) -> Result<WriteOptions, Status> {
        let mut errors = FieldErrors::default();
        let mut dry_run = false;
        // An empty one is refused too: who writes it means a dry run.
        for value in self.query.all("dryRun") {
            dry_run = true;
            if value != "All" {
                errors.not_supported("dryRun", &value.into(), &["All"]);
            }
        }
        if let Some(manager) = self.query.text("fieldManager") {
            if manager.chars().count() > MANAGER_CHARS {
                errors.too_long("fieldManager", &manager.into(), MANAGER_CHARS);
            }
            if manager.chars().any(char::is_control) {
                errors.invalid(
                    "fieldManager",
                    &manager.into(),
                    "should only contain printable characters",
                );
            }
        }
        if !errors.is_empty() {
            return Err(Status::invalid(
                &Gvk::new("meta.k8s.io", "v1", "WriteOptions"),
                "",
                errors,
            ));
        }
        Ok(WriteOptions { dry_run })
    }
}

impl<'a> Call<'a> {
    /// What `Accept` asks for.
    pub(crate) fn shape(&self) -> Result<Shape, Status> {
        let accept = self
            .headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let form = accept::negotiate(accept)
            .ok_or_else(|| Status::not_acceptable(&encoding::MEDIA_TYPES))?;
        let include = self.query.get("includeObject").unwrap_or_default();
        let include = IncludeObject::parse(include).ok_or_else(|| {
            Status::bad_request(format!("unrecognized includeObject value: {include:?}"))
        })?;
        Ok(Shape { form, include })
    }

    /// Who comes to own what is written: as the request says, or else as its program is called.
    pub(crate) fn field_manager(&self) -> FieldManager {
        let agent = || {
            let agent = self
                .headers
                .get(header::USER_AGENT)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            let name = agent.split('/').next().unwrap_or_default();
            let name: String = name
                .chars()
                .filter(|letter| !letter.is_control())
                .take(MANAGER_CHARS)
                .collect();
            match self.user.name.rsplit(':').next() {
                _ if !name.is_empty() => name,
                // A part of this process names no program.
                Some(own) if self.user.is_component() => own.to_owned(),
                _ => "unknown".to_owned(),
            }
        };
        let name = self
            .query
            .text("fieldManager")
            .map_or_else(agent, str::to_owned);
        FieldManager::new(name, self.info.subresource, self.user.is_component())
    }

    /// This write, as admission is told of it.
    pub(crate) fn admission_request(
        &self,
        operation: Operation,
        options: WriteOptions,
    ) -> Request<'a> {
        let info = self.info;
        Request {
            user: self.user,
            operation,
            resource: &self.resource.info,
            subresource: info.subresource,
            // The URL of a Namespace has its own name there.
            namespace: if self.resource.is_namespaced() {
                info.namespace.as_ref()
            } else {
                ""
            },
            name: info.name.as_ref(),
            options,
            told: self.told(operation),
        }
    }

    /// What it says of itself besides. That of a deletion is in its body as well.
    fn told(&self, operation: Operation) -> Told<'a> {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            // Of patches, too: what is told is what is done, not how it was asked for.
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Told::default(),
        };
        let text = |name| self.query.text(name).unwrap_or_default();
        Told {
            kind,
            field_manager: text("fieldManager"),
            field_validation: text("fieldValidation"),
            delete: None,
        }
    }

    /// What this write changes.
    pub(crate) fn update_target<'b>(
        &'b self,
        part: Part,
        options: WriteOptions,
        manager: &'b FieldManager,
    ) -> UpdateTarget<'b> {
        let Request {
            namespace, name, ..
        } = self.admission_request(Operation::Update, options);
        UpdateTarget {
            namespace,
            name,
            part,
            options,
            tries: None,
            manager: Some(manager),
        }
    }

    fn field_validation(&self) -> Result<FieldValidation, Status> {
        match self.query.text("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => {
                let mut errors = FieldErrors::default();
                errors.not_supported(
                    "fieldValidation",
                    &other.into(),
                    &["Ignore", "Strict", "Warn"],
                );
                Err(Status::invalid(
                    &Gvk::new("meta.k8s.io", "v1", "WriteOptions"),
                    "",
                    errors,
                ))
            }
        }
    }

    /// The body as an object of `expected`.
    pub(crate) fn decode(&self, expected: &Gvk) -> Result<Decoded, Status> {
        decoded(
            self.resource,
            &self.body,
            content_type(self.headers)?,
            expected,
            self.field_validation()?,
        )
    }

    /// An object made here, such as a patched one, checked as if the client had sent it.
    pub(crate) fn recheck(
        &self,
        object: &serde_json::Value,
        expected: &Gvk,
    ) -> Result<Decoded, Status> {
        let body = serde_json::to_vec(object).unwrap_or_default();
        if body.len() > BODY_LIMIT {
            return Err(Status::request_entity_too_large(BODY_LIMIT));
        }
        decoded(
            self.resource,
            &body,
            ContentType::Json,
            expected,
            self.field_validation()?,
        )
    }

    /// What a verb that is not the resource's is told.
    pub(crate) fn unsupported(&self) -> Status {
        let resource = GroupResource::new(self.info.group, self.info.resource_path());
        Status::method_not_supported(&resource, self.info.verb.as_str())
    }

    /// The answer to a write.
    pub(crate) fn write_reply(
        &self,
        written: Written,
        mut warnings: Vec<String>,
    ) -> Result<Reply, Status> {
        warnings.extend(written.warnings);
        let status = if written.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Ok(self
            .object_reply(written.json, self.shape()?)
            .with_status(status)
            .with_warnings(warnings))
    }

    /// One object as the client wants it.
    pub(crate) fn object_reply(&self, json: Bytes, shape: Shape) -> Reply {
        Self::shaped(&*self.resource.strategy, json, shape)
    }

    /// One object of another kind, such as a subresource's, with the columns of `strategy`.
    pub(crate) fn shaped(strategy: &dyn Strategy, json: Bytes, shape: Shape) -> Reply {
        match shape.form {
            Form::Object => Reply::line(&json),
            Form::Table(version) => {
                let options = TableOptions {
                    version,
                    include: shape.include,
                    with_columns: true,
                    now_secs: now_secs(),
                };
                let revision = stored::revision(&json);
                let meta = ListMeta {
                    resource_version: revision,
                    ..ListMeta::default()
                };
                Reply::line(&table::render(strategy, [&json[..]], options, &meta))
            }
            Form::PartialObjectMetadata(version) => {
                Reply::line(&table::partial_metadata(&json, version))
            }
        }
    }
}

/// A body as an object of `expected`: what is stored as `resource`, or some other kind that the
/// server knows.
pub(crate) fn decoded(
    resource: &Resource,
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let schema = resource.schema.as_ref();
    match schema.filter(|_| *expected == resource.gvk) {
        Some(schema) => decode::decode_along(schema, body, content, expected, validation),
        None => decode::decode(body, content, expected, validation),
    }
}

/// How the body is encoded. None said is JSON: some clients never say.
pub(crate) fn content_type(headers: &HeaderMap) -> Result<ContentType, Status> {
    let named = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match named.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" | "*/*" => Ok(ContentType::Json),
        "application/yaml" => Ok(ContentType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(ContentType::Protobuf),
        _ => Err(Status::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ])),
    }
}

/// Unix time, for ages.
pub(crate) fn now_secs() -> i64 {
    jiff::Timestamp::now().as_second()
}
