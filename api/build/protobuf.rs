//! Reads the messages of `k8s-pb`: tags from the attributes, markers from the doc comments.

use std::{collections::BTreeMap, fs, path::Path};

/// One protobuf message.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// Doc comment.
    pub(crate) docs: Vec<String>,
    /// Fields by normalized name.
    pub(crate) fields: BTreeMap<String, MessageField>,
}

/// One field of a message.
#[derive(Debug)]
pub(crate) struct MessageField {
    /// Field number.
    pub(crate) tag: u16,
    /// Doc comment.
    pub(crate) docs: Vec<String>,
    /// Key of the message that it holds, when it is a single message.
    pub(crate) message: Option<String>,
}

/// A name as both sources agree on it: lower case, letters and digits only.
pub(crate) fn normalize(name: &str) -> String {
    name.trim_start_matches("r#")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// The key of a message: module path and normalized name.
pub(crate) fn key(path: &str) -> String {
    let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
    format!("{module}::{}", normalize(name))
}

/// The values of a marker such as `+listMapKey=name` in a doc comment.
pub(crate) fn marker<'a>(docs: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    docs.iter()
        .filter_map(move |line| {
            line.strip_prefix('+')?
                .strip_prefix(name)?
                .strip_prefix('=')
        })
        .map(str::trim)
}

/// Text for people: the comment without markers.
pub(crate) fn prose(docs: &[String]) -> String {
    let lines: Vec<&str> = docs
        .iter()
        .map(String::as_str)
        .filter(|l| !l.starts_with('+') && !l.is_empty())
        .collect();
    lines.join(" ")
}

/// Reads every message under `dir`, by [`key`].
pub(crate) fn read(dir: &Path) -> BTreeMap<String, Message> {
    let mut out = BTreeMap::new();
    read_dir(dir, "", &mut out);
    assert!(
        out.len() > 500,
        "k8s-pb has another shape than expected: {} messages",
        out.len()
    );
    out
}

fn read_dir(dir: &Path, module: &str, out: &mut BTreeMap<String, Message>) {
    for entry in fs::read_dir(dir).expect("k8s-pb's sources").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            let inner = if module.is_empty() {
                name
            } else {
                format!("{module}::{name}")
            };
            read_dir(&path, &inner, out);
        } else if name == "mod.rs" {
            read_file(
                &fs::read_to_string(&path).expect("a source file"),
                module,
                out,
            );
        }
    }
}

fn read_file(text: &str, module: &str, out: &mut BTreeMap<String, Message>) {
    let mut docs = Vec::new();
    let mut current: Option<(String, Message)> = None;
    let mut attribute = String::new();
    let mut field: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if let Some(declaration) = &mut field {
            // A declaration that spans lines.
            declaration.push_str(line);
        } else if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim().to_owned());
            continue;
        } else if line.starts_with("#[prost(")
            || (!attribute.is_empty() && !attribute.ends_with(")]"))
        {
            attribute.push_str(line);
            continue;
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches([' ', '{', '}']);
            let message = Message {
                docs: std::mem::take(&mut docs),
                fields: BTreeMap::new(),
            };
            if rest.ends_with("{}") {
                out.insert(key(&format!("{module}::{name}")), message);
            } else {
                current = Some((name.to_owned(), message));
            }
            continue;
        } else if line == "}" {
            if let Some((name, message)) = current.take() {
                out.insert(key(&format!("{module}::{name}")), message);
            }
            docs.clear();
            continue;
        } else if line.starts_with("pub ") && current.is_some() {
            field = Some(line.to_owned());
        } else {
            if !line.starts_with("#[") {
                docs.clear();
            }
            continue;
        }
        let done = field
            .as_ref()
            .is_some_and(|d| d.ends_with(',') && d.matches('<').count() == d.matches('>').count());
        if let (true, Some(declaration), Some((_, message))) = (done, &field, &mut current) {
            if let Some((name, parsed)) =
                read_field(declaration, &attribute, std::mem::take(&mut docs), module)
            {
                message.fields.insert(name, parsed);
            }
            attribute.clear();
            field = None;
        }
    }
}

fn read_field(
    declaration: &str,
    attribute: &str,
    docs: Vec<String>,
    module: &str,
) -> Option<(String, MessageField)> {
    let (name, kind) = declaration
        .strip_prefix("pub ")?
        .trim_end_matches(',')
        .split_once(':')?;
    let tag = attribute
        .split_once("tag = \"")?
        .1
        .split('"')
        .next()?
        .parse()
        .ok()?;
    let single = attribute.starts_with("#[prost(message, optional")
        || attribute.starts_with("#[prost(message,optional");
    let inner = kind
        .split_once("Option<")
        .map(|(_, after)| after.trim_end_matches('>').trim());
    let inner = inner.map(|i| {
        i.trim_start_matches("::prost::alloc::boxed::Box<")
            .trim_end_matches('>')
    });
    let message = inner
        .filter(|_| single)
        .map(|path| key(&resolve(path, module)));
    Some((normalize(name.trim()), MessageField { tag, docs, message }))
}

/// A path relative to `module` as an absolute one.
fn resolve(path: &str, module: &str) -> String {
    let mut base: Vec<&str> = module.split("::").collect();
    let mut rest = path;
    while let Some(after) = rest.strip_prefix("super::") {
        base.pop();
        rest = after;
    }
    base.push(rest);
    base.join("::")
}
