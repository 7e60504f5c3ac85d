//! Which form of an object an `Accept` header asks for.
//!
//! Who takes JSON gets JSON; YAML and protobuf are for those who take nothing else. Media ranges
//! are tried in the order given; quality values are ignored, as upstream does.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go` at v1.37.

use super::MetaVersion;

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The object or list itself.
    Object,
    /// `as=Table`
    Table(MetaVersion),
    /// `as=PartialObjectMetadata`, or the list of a list.
    PartialObjectMetadata(MetaVersion),
}

/// `application/yaml`
pub(crate) const YAML: &str = "application/yaml";
/// Kubernetes' protobuf.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What an answer is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// The form of everything in this server.
    Json,
    /// For those who do not take JSON.
    Yaml,
    /// The same.
    Protobuf,
}

/// What the header asks for; JSON if nothing of it can be served.
pub(crate) fn encoding(accept: &str) -> Encoding {
    let mut other = None;
    for range in media_ranges(accept) {
        match range.media_type {
            media_type if takes_json(media_type) => return Encoding::Json,
            YAML if other.is_none() => other = Some(Encoding::Yaml),
            PROTOBUF if other.is_none() => other = Some(Encoding::Protobuf),
            _ => {}
        }
    }
    other.unwrap_or(Encoding::Json)
}

/// Whether a media type is that of the encoding.
fn is_of(encoding: Encoding, media_type: &str) -> bool {
    match encoding {
        Encoding::Json => takes_json(media_type),
        Encoding::Yaml => media_type == YAML,
        Encoding::Protobuf => media_type == PROTOBUF,
    }
}

/// A media range taken apart: `application/json;as=Table;v=v1;g=meta.k8s.io`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MediaRange<'a> {
    pub(crate) media_type: &'a str,
    pub(crate) as_kind: &'a str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
}

pub(crate) fn media_ranges(accept: &str) -> impl Iterator<Item = MediaRange<'_>> {
    accept.split(',').map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let mut parsed = MediaRange {
            media_type: parts.next().unwrap_or_default(),
            ..MediaRange::default()
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "as" => parsed.as_kind = value,
                "g" => parsed.group = value,
                "v" => parsed.version = value,
                _ => {}
            }
        }
        parsed
    })
}

/// Whether JSON satisfies a media type.
pub(crate) fn takes_json(media_type: &str) -> bool {
    matches!(
        media_type,
        "" | "*/*" | "application/*" | "application/json"
    )
}

/// Whether the header takes the object itself, which is all that some endpoints give.
pub(crate) fn takes_object(accept: &str) -> bool {
    accept.trim().is_empty()
        || media_ranges(accept).any(|range| {
            range.as_kind.is_empty()
                && (takes_json(range.media_type) || [YAML, PROTOBUF].contains(&range.media_type))
        })
}

/// The first form in the header that can be served; `None` is 406.
#[must_use]
pub fn negotiate(accept: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Object);
    }
    let encoding = encoding(accept);
    media_ranges(accept)
        .filter(|range| is_of(encoding, range.media_type))
        .find_map(|range| {
            if range.as_kind.is_empty() {
                return Some(Form::Object);
            }
            let version = match (range.group, range.version) {
                ("meta.k8s.io", "v1") => MetaVersion::V1,
                ("meta.k8s.io", "v1beta1") => MetaVersion::V1beta1,
                _ => return None,
            };
            match range.as_kind {
                "Table" => Some(Form::Table(version)),
                "PartialObjectMetadata" | "PartialObjectMetadataList" => {
                    Some(Form::PartialObjectMetadata(version))
                }
                _ => None,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_servable_form_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        for (accept, expect) in [
            ("", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            ("application/json, */*", Some(Form::Object)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some(Form::Object),
            ),
            ("application/vnd.kubernetes.protobuf", Some(Form::Object)),
            ("application/yaml;q=0.9", Some(Form::Object)),
            ("application/cbor", None),
            ("application/xml", None),
            (kubectl, Some(Form::Table(MetaVersion::V1))),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                Some(Form::Table(MetaVersion::V1beta1)),
            ),
            ("application/json;as=Table;v=v9;g=meta.k8s.io", None),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                Some(Form::Object),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                Some(Form::PartialObjectMetadata(MetaVersion::V1)),
            ),
        ] {
            assert_eq!(negotiate(accept), expect, "{accept}");
        }
    }
}
