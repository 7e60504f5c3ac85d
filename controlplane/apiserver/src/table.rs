//! Objects as `meta.k8s.io` Table and PartialObjectMetadata, the two forms that clients ask for
//! instead of the objects themselves.
//!
//! Works on encoded objects, so that lists and watch events out of the watch cache need no other
//! form. What the cells show is each kind's business (`registry/<group>/<kind>.rs`); what `Accept`
//! headers ask for is [`accept`]'s.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/response.go` and
//! `k8s.io/apimachinery/pkg/apis/meta/v1/types.go` at v1.37.

pub mod accept;

use coracle_registry::strategy::{Column, Strategy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// The versions of group `meta.k8s.io` that have Table and PartialObjectMetadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1beta1,
}

/// What a row carries beside its cells, as `?includeObject=` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, as PartialObjectMetadata. The default.
    Metadata,
    /// The whole object.
    Object,
}

/// How a table is to look.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Which `meta.k8s.io`.
    pub version: MetaVersion,
    /// What the rows carry.
    pub include: IncludeObject,
    /// Whether to name the columns: yes, except in all watch events but the first.
    pub with_columns: bool,
    /// Unix time, for ages.
    pub now_secs: i64,
}

/// The `metadata` of a list.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta<'a> {
    /// Of the snapshot; of the object, for a table of one object.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: &'a str,
    /// For the next chunk.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<&'a str>,
    /// How many follow, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

impl IncludeObject {
    /// The value of the query parameter; empty means the default.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

impl MetaVersion {
    /// `meta.k8s.io/v1`
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The members of a Table before its rows, as JSON.
pub(crate) fn head(
    strategy: &dyn Strategy,
    options: TableOptions,
    meta: &ListMeta<'_>,
) -> Vec<(&'static str, String)> {
    let columns: &[Column] = if options.with_columns {
        strategy.columns()
    } else {
        &[]
    };
    let definitions: Vec<_> = columns.iter().map(Definition::of).collect();
    let mut head = list_head("Table", options.version.api_version(), meta);
    head.push(("columnDefinitions", text(&definitions)));
    head
}

/// The members of a list before its items, as JSON.
pub(crate) fn list_head(
    kind: &str,
    api_version: &str,
    meta: &ListMeta<'_>,
) -> Vec<(&'static str, String)> {
    vec![
        ("kind", text(&kind)),
        ("apiVersion", text(&api_version)),
        ("metadata", text(meta)),
    ]
}

/// Encoded objects of one kind as one encoded Table. `objects` are JSON with `resourceVersion`
/// already inside.
pub fn render<'a>(
    strategy: &dyn Strategy,
    objects: impl IntoIterator<Item = &'a [u8]>,
    options: TableOptions,
    meta: &ListMeta<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    for (name, json) in head(strategy, options, meta) {
        let open = if out.is_empty() { '{' } else { ',' };
        out.extend_from_slice(format!("{open}\"{name}\":{json}").as_bytes());
    }
    out.extend_from_slice(br#","rows":["#);
    for (index, object) in objects.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append_row(&mut out, strategy, object, object, options);
    }
    out.extend_from_slice(b"]}");
    out
}

/// One encoded object as encoded PartialObjectMetadata.
#[must_use]
pub fn partial_metadata(object: &[u8], version: MetaVersion) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    append_partial(&mut out, object, version);
    out
}

fn append(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value)
        .expect("plain data encodes, and memory does not fail to write");
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data encodes")
}

/// A column, as the table has it.
#[derive(Serialize)]
struct Definition<'a> {
    name: &'a str,
    r#type: &'a str,
    format: &'a str,
    description: &'a str,
    priority: i32,
}

impl<'a> Definition<'a> {
    fn of(column: &'a Column) -> Self {
        Self {
            name: &column.name,
            r#type: &column.kind,
            format: &column.format,
            description: &column.description,
            priority: column.priority,
        }
    }
}

/// Appends the row of one object. `shown` is its JSON; `read` is that too, or lacks what no cell
/// tells of.
pub(crate) fn append_row(
    out: &mut Vec<u8>,
    strategy: &dyn Strategy,
    read: &[u8],
    shown: &[u8],
    options: TableOptions,
) {
    // What the store holds is JSON that this server wrote; a row without content beats a failed
    // list.
    let value: Value = serde_json::from_slice(read).unwrap_or_default();
    out.extend_from_slice(br#"{"cells":"#);
    append(out, &strategy.row(&value, options.now_secs));
    let conditions = strategy.row_conditions(&value);
    if !conditions.is_empty() {
        out.extend_from_slice(br#","conditions":"#);
        append(out, &conditions);
    }
    match options.include {
        IncludeObject::None => {}
        IncludeObject::Object => {
            out.extend_from_slice(br#","object":"#);
            out.extend_from_slice(shown);
        }
        IncludeObject::Metadata => {
            out.extend_from_slice(br#","object":"#);
            append_partial(out, shown, options.version);
        }
    }
    out.push(b'}');
}

/// Appends one object as PartialObjectMetadata.
pub(crate) fn append_partial(out: &mut Vec<u8>, object: &[u8], version: MetaVersion) {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let metadata =
        serde_json::from_slice::<Head<'_>>(object).map_or("{}", |head| head.metadata.get());
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":""#);
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    out.extend_from_slice(metadata.as_bytes());
    out.push(b'}');
}

#[cfg(test)]
mod tests;
