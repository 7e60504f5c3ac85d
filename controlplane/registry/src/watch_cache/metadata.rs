//! Reads from an object's JSON what selectors and handlers ask about most: labels, UID, whether it
//! is going away; and where the text is that managers own.
//!
//! Metadata comes before spec and status in stored objects, so reading stops there. Nothing is
//! copied: what is found are offsets. Labels with escapes (none that the API server admits) are the
//! exception and are held unescaped.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::stored;

/// A piece of text inside an object's JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// The text, in the JSON that the span was found in.
    pub(crate) fn text(self, json: &[u8]) -> &str {
        json.get(self.range())
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }

    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }

    fn of(text: &str, json: &[u8]) -> Option<Self> {
        let start = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
        (start + text.len() <= json.len()).then_some(())?;
        Some(Self {
            start: u32::try_from(start).ok()?,
            len: u32::try_from(text.len()).ok()?,
        })
    }
}

/// The labels of an object.
pub(crate) enum Labels {
    /// Offsets into the JSON.
    Spans(Box<[(Span, Span)]>),
    /// Unescaped copies.
    Owned(Box<[(Box<str>, Box<str>)]>),
}

impl Default for Labels {
    fn default() -> Self {
        Self::Spans(Box::default())
    }
}

impl Labels {
    /// The value of one. Who looks through thousands of objects for it finds most have another.
    pub(crate) fn get<'a>(&'a self, name: &str, json: &'a [u8]) -> Option<&'a str> {
        match self {
            Self::Spans(spans) => {
                let named =
                    |(key, _): &&(Span, Span)| json.get(key.range()) == Some(name.as_bytes());
                spans.iter().find(named).map(|(_, value)| value.text(json))
            }
            Self::Owned(owned) => {
                let mut owned = owned.iter();
                owned.find_map(|(key, value)| (**key == *name).then_some(&**value))
            }
        }
    }

    /// Key and value of each.
    pub(crate) fn iter<'a>(&'a self, json: &'a [u8]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (spans, owned) = match self {
            Self::Spans(spans) => (&**spans, Default::default()),
            Self::Owned(owned) => (Default::default(), &**owned),
        };
        spans
            .iter()
            .map(|(key, value)| (key.text(json), value.text(json)))
            .chain(owned.iter().map(|(key, value)| (&**key, &**value)))
    }
}

/// What is read.
#[derive(Default)]
pub(crate) struct Metadata {
    pub(crate) uid: Span,
    pub(crate) labels: Labels,
    pub(crate) terminating: bool,
    /// Each `managedFields[*].fieldsV1`.
    pub(crate) managed: Vec<Range<usize>>,
    /// Where it ends; 0 if there is none.
    pub(crate) end: usize,
}

/// Reads the metadata of an object that is laid out as stored ones are; of any other, nothing.
pub(crate) fn parse(json: &[u8]) -> Result<Metadata, serde_json::Error> {
    // With the brace before its first member.
    let Some(rest) = stored::metadata_start(json).and_then(|at| json.get(at - 1..)) else {
        return Ok(Metadata::default());
    };
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Wire<'_>>();
    let Some(wire) = values.next().transpose()? else {
        return Ok(Metadata::default());
    };
    let end = json.len() - rest.len() + values.byte_offset();
    let uid = wire
        .uid
        .as_ref()
        .and_then(|uid| Span::of(&uid.0, json))
        .unwrap_or_default();
    let pairs = wire.labels.map(|labels| labels.0).unwrap_or_default();
    let spans = pairs
        .iter()
        .map(|(key, value)| Some((key.span(json)?, value.span(json)?)))
        .collect::<Option<Box<[_]>>>();
    let labels = match spans {
        Some(spans) => Labels::Spans(spans),
        None => Labels::Owned(
            pairs
                .iter()
                .map(|(key, value)| (Box::from(&*key.0), Box::from(&*value.0)))
                .collect(),
        ),
    };
    let managed = wire
        .managed_fields
        .unwrap_or_default()
        .into_iter()
        .filter_map(|manager| manager.fields);
    let managed = managed
        .filter_map(|fields| Span::of(fields.get(), json).map(Span::range))
        .collect();
    Ok(Metadata {
        uid,
        labels,
        terminating: wire.deletion_timestamp.is_some(),
        managed,
        end,
    })
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
    #[serde(borrow, default)]
    labels: Option<Pairs<'a>>,
    #[serde(rename = "deletionTimestamp", default)]
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(rename = "managedFields", borrow, default)]
    managed_fields: Option<Vec<Manager<'a>>>,
}

#[derive(Deserialize)]
struct Manager<'a> {
    #[serde(rename = "fieldsV1", borrow, default)]
    fields: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// `None` if the text had to be unescaped.
    fn span(&self, json: &[u8]) -> Option<Span> {
        match &self.0 {
            Cow::Borrowed(text) => Span::of(text, json),
            Cow::Owned(_) => None,
        }
    }
}

/// A JSON object of strings as a list.
struct Pairs<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, Option<Text<'de>>>()? {
                    pairs.push((key, value.unwrap_or_default()));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}
