//! Reads `supplement.txt`: facts that the published crates do not have.
//!
//! ```text
//! field <type> <json name> <tag or -> [required|optional|plain|pointer] [listType=..] [listMapKey=..] [patchStrategy=..] [patchMergeKey=..]
//! message <type>
//!   <json name> <tag> <kind> [required]        kind: string, bool, int64, bytes, a type name; [] or {} before it
//! ```

use std::collections::BTreeMap;

/// All facts.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// By type and JSON name.
    pub(crate) fields: BTreeMap<(String, String), FieldFact>,
    /// Whole types that `k8s-openapi` does not have: name, fields.
    pub(crate) messages: Vec<(String, Vec<NewField>)>,
}

/// What is known of one field.
#[derive(Debug, Default)]
pub(crate) struct FieldFact {
    /// Field numbers, outermost first.
    pub(crate) tags: Vec<u16>,
    /// Markers in the form of doc comments: `+listType=atomic`.
    pub(crate) markers: Vec<String>,
}

/// A field of a type that `k8s-openapi` does not have.
#[derive(Debug)]
pub(crate) struct NewField {
    pub(crate) name: String,
    pub(crate) tag: u16,
    pub(crate) kind: String,
    pub(crate) required: bool,
}

/// Reads the text.
pub(crate) fn read(text: &str) -> Facts {
    let mut facts = Facts::default();
    for line in text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.trim().is_empty())
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["field", owner, name, tags, markers @ ..] => {
                let fact = FieldFact {
                    tags: tags
                        .split('.')
                        .filter(|t| *t != "-")
                        .map(|t| t.parse().expect("a tag"))
                        .collect(),
                    markers: markers.iter().map(|m| format!("+{m}")).collect(),
                };
                facts
                    .fields
                    .insert(((*owner).to_owned(), (*name).to_owned()), fact);
            }
            ["message", name] => facts.messages.push(((*name).to_owned(), Vec::new())),
            [name, tag, kind, rest @ ..] if line.starts_with(' ') => {
                let (_, fields) = facts
                    .messages
                    .last_mut()
                    .expect("a field stands under its message");
                fields.push(NewField {
                    name: (*name).to_owned(),
                    tag: tag.parse().expect("a tag"),
                    kind: (*kind).to_owned(),
                    required: rest.contains(&"required"),
                });
            }
            _ => panic!("supplement.txt: {line}"),
        }
    }
    facts
}
