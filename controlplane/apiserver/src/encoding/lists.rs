//! Large lists in another form than JSON, item by item: what is in memory is a piece of one.
//!
//! YAML is written in the order of its keys, as Go does it. In protobuf the length of the whole
//! stands before the first item, so the items are written twice, the first time to see how long
//! they are: as upstream does, which has no other way either.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf/collections.go` at v1.37.

use std::{mem, time::Duration};

use bytes::Bytes;
use coracle_api::{
    encode::{EncodeError, LIST_END, ListEncoder},
    status::Status,
};
use http::Response;
use serde_json::{Map, Value};

use super::{Form, indented, unwritable};
use crate::{
    body::{
        Body, BoxError, List, Pieces,
        list::{Items, PIECE},
        pieces::PieceSource,
    },
    limits::RETRY_SECS,
    reply,
};

/// For seeing how long a list gets: as much as there is for sending it.
const MEASURING: Duration = Duration::from_secs(60);

/// A list that is more than a piece.
pub(super) async fn written(form: Form, list: List) -> Result<Body, Box<Response<Body>>> {
    let turns = list.turns.clone();
    let (source, length): (PieceSource, _) = match form {
        Form::Pretty => (indented(list.into_json_pieces()), None),
        Form::Yaml => match YamlPieces::of(list) {
            Ok(pieces) => (Box::new(pieces), None),
            Err(error) => return Err(Box::new(unwritable(&error))),
        },
        Form::Protobuf => {
            let measured = tokio::time::timeout(MEASURING, ProtobufPieces::of(list)).await;
            match measured {
                Ok(Ok((pieces, length))) => (Box::new(pieces), Some(length)),
                Ok(Err(error)) => return Err(Box::new(unwritable(&error))),
                Err(_) => {
                    let late = Status::timeout("the list could not be written in time", RETRY_SECS);
                    return Err(Box::new(reply::failure(&late)));
                }
            }
        }
    };
    Ok(Body::Pieces(Box::new(Pieces::new(source, turns, length))))
}

/// A list as YAML: the members whose names come before the items', the items, the others.
struct YamlPieces {
    items: Items,
    before: String,
    after: String,
    has_ended: bool,
}

impl YamlPieces {
    fn of(list: List) -> Result<Self, BoxError> {
        let (mut before, mut after) = (Map::new(), Map::new());
        for (name, json) in &list.head {
            let members = if *name < list.name {
                &mut before
            } else {
                &mut after
            };
            members.insert((*name).to_owned(), serde_json::from_str::<Value>(json)?);
        }
        let text = |members: &Map<String, Value>| {
            if members.is_empty() {
                Ok(String::new())
            } else {
                serde_yaml::to_string(members)
            }
        };
        Ok(Self {
            before: format!("{}{}:\n", text(&before)?, list.name),
            after: text(&after)?,
            items: list.items,
            has_ended: false,
        })
    }

    fn piece(&mut self) -> Result<Bytes, BoxError> {
        let mut text = mem::take(&mut self.before).into_bytes();
        let mut json = Vec::new();
        while text.len() < PIECE && !self.items.rest().is_empty() {
            json.clear();
            self.items.append_next(&mut json);
            serde_yaml::to_writer(&mut text, &[serde_json::from_slice::<Value>(&json)?])?;
        }
        if self.items.rest().is_empty() {
            text.extend_from_slice(self.after.as_bytes());
            self.has_ended = true;
        }
        Ok(text.into())
    }
}

impl Iterator for YamlPieces {
    type Item = Result<Bytes, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.has_ended).then(|| self.piece())
    }
}

/// A list as protobuf.
struct ProtobufPieces {
    items: Items,
    encoder: ListEncoder,
    begin: Vec<u8>,
    /// The JSON of one item.
    json: Vec<u8>,
    has_ended: bool,
}

/// A list whose items are being measured.
struct Measuring {
    items: Items,
    encoder: ListEncoder,
    json: Vec<u8>,
    /// How many items have been, and what they take.
    measured: usize,
    bytes: usize,
}

impl ProtobufPieces {
    /// And how long it gets.
    async fn of(list: List) -> Result<(Self, u64), BoxError> {
        let encoder = encoder_of(&list)?;
        let List { items, turns, .. } = list;
        let mut measuring = Measuring {
            items,
            encoder,
            json: Vec::new(),
            measured: 0,
            bytes: 0,
        };
        while measuring.measured < measuring.items.rest().len() {
            let work = move || measuring.piece().map(|()| measuring);
            measuring = turns.work(work).await.flatten()??;
        }
        let Measuring {
            items,
            encoder,
            json,
            bytes,
            ..
        } = measuring;
        let begin = encoder.begin(bytes);
        let length = (begin.len() + bytes + LIST_END.len()) as u64;
        let pieces = Self {
            items,
            encoder,
            begin,
            json,
            has_ended: false,
        };
        Ok((pieces, length))
    }

    fn piece(&mut self) -> Result<Bytes, BoxError> {
        let mut out = mem::take(&mut self.begin);
        while out.len() < PIECE && !self.items.rest().is_empty() {
            self.json.clear();
            self.items.append_next(&mut self.json);
            self.encoder.append_item(&self.json, &mut out)?;
        }
        if self.items.rest().is_empty() {
            out.extend_from_slice(LIST_END);
            self.has_ended = true;
        }
        Ok(out.into())
    }
}

fn encoder_of(list: &List) -> Result<ListEncoder, BoxError> {
    let name = |of| serde_json::from_str::<String>(list.member(of));
    let (version, kind) = (name("apiVersion")?, name("kind")?);
    Ok(ListEncoder::new(&version, &kind, list.member("metadata"))?)
}

impl Measuring {
    /// As many items as are a piece together.
    fn piece(&mut self) -> Result<(), EncodeError> {
        let mut out = Vec::with_capacity(PIECE);
        for object in &self.items.rest()[self.measured..] {
            self.json.clear();
            self.items.append(object, &mut self.json);
            self.encoder.append_item(&self.json, &mut out)?;
            self.measured += 1;
            if out.len() >= PIECE {
                break;
            }
        }
        self.bytes += out.len();
        Ok(())
    }
}

impl Iterator for ProtobufPieces {
    type Item = Result<Bytes, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.has_ended).then(|| self.piece())
    }
}
