//! Reads the `JsonSchema` implementations of `k8s-openapi`: each holds one definition of
//! Kubernetes' OpenAPI document as a literal, with Rust paths in place of references.

use std::{collections::BTreeMap, fs, path::Path};

/// One definition of the OpenAPI document.
pub(crate) struct Definition {
    /// Rust path without `crate::`, such as `api::core::v1::Pod`.
    pub(crate) path: String,
    /// OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
    pub(crate) name: String,
    /// Group, version and kind, where it is a kind.
    pub(crate) gvk: Option<[String; 3]>,
    /// The kind of the list of it.
    pub(crate) list_kind: Option<String>,
    /// The schema.
    pub(crate) schema: Schema,
}

/// A JSON schema literal.
#[derive(Debug, Clone)]
pub(crate) enum Schema {
    Object(BTreeMap<String, Schema>),
    Array(Vec<Schema>),
    Text(String),
    /// `true`, `false` or a number: never looked at.
    Word,
    /// A reference to another type by Rust path, with the description of its use.
    Ref(String, String),
}

impl Schema {
    pub(crate) fn get(&self, key: &str) -> Option<&Schema> {
        match self {
            Schema::Object(map) => map.get(key),
            _ => None,
        }
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        match self.get(key) {
            Some(Schema::Text(text)) => text,
            _ => "",
        }
    }
}

/// Reads every definition under `dir`.
pub(crate) fn read(dir: &Path) -> Vec<Definition> {
    let mut out = Vec::new();
    read_dir(dir, "", &mut out);
    assert!(
        out.len() > 500,
        "k8s-openapi has another shape than expected: {} definitions",
        out.len()
    );
    out
}

fn read_dir(dir: &Path, module: &str, out: &mut Vec<Definition>) {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .expect("k8s-openapi's sources")
        .flatten()
        .map(|e| e.path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            let inner = if module.is_empty() {
                name.to_owned()
            } else {
                format!("{module}::{name}")
            };
            read_dir(&path, &inner, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            out.extend(read_file(&text, module));
        }
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(start)?;
    Some(after.split_once(end)?.0)
}

fn read_file(text: &str, module: &str) -> Option<Definition> {
    let (code, implementation) = text.split_once("crate::schemars::JsonSchema for ")?;
    let rust_name = implementation.split([' ', '<']).next()?;
    let name = between(
        implementation,
        "fn schema_name() -> std::borrow::Cow<'static, str> {",
        "}",
    )?;
    let name = between(name, "\"", "\"").filter(|n| n.starts_with("io.k8s."))?;
    let (_, literal) = implementation.split_once("json_schema!(")?;
    let gvk = code.contains("impl crate::Resource for ").then(|| {
        ["GROUP", "VERSION", "KIND"].map(|key| {
            between(code, &format!("const {key}: &'static str = \""), "\"")
                .unwrap_or_default()
                .to_owned()
        })
    });
    Some(Definition {
        path: format!("{module}::{rust_name}"),
        name: name.to_owned(),
        gvk,
        list_kind: between(code, "const LIST_KIND: &'static str = \"", "\"").map(str::to_owned),
        schema: Parser { text: literal }.value(),
    })
}

/// A parser of the literal. Panics on what it does not know: the crate's version is locked, so that
/// is never a surprise at run time.
struct Parser<'a> {
    text: &'a str,
}

impl Parser<'_> {
    fn skip_space(&mut self) {
        self.text = self.text.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.text.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) {
        assert!(
            self.eat(token),
            "expected {token} at: {}",
            &self.text.chars().take(80).collect::<String>()
        );
    }

    fn value(&mut self) -> Schema {
        if self.eat("{") {
            return self.object();
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                items.push(self.value());
                self.eat(",");
            }
            return Schema::Array(items);
        }
        if self.eat("({") {
            self.expect("let mut schema_obj =");
            let path = self.reference();
            self.expect(";");
            self.expect("schema_obj.ensure_object().insert(\"description\".into(),");
            let description = self.string();
            self.expect(".into());");
            self.expect("schema_obj");
            self.expect("})");
            return Schema::Ref(path, description);
        }
        if self.eat("(") {
            let path = self.reference();
            self.expect(")");
            return Schema::Ref(path, String::new());
        }
        if self.text.starts_with("__gen.") {
            return Schema::Ref(self.reference(), String::new());
        }
        if self.text.starts_with('"') {
            return Schema::Text(self.string());
        }
        let end = self
            .text
            .find([',', '}', ']', '\n'])
            .expect("the end of a word");
        self.text = &self.text[end..];
        Schema::Word
    }

    fn object(&mut self) -> Schema {
        let mut map = BTreeMap::new();
        while !self.eat("}") {
            self.skip_space();
            let key = self.string();
            self.expect(":");
            map.insert(key, self.value());
            self.eat(",");
        }
        Schema::Object(map)
    }

    fn reference(&mut self) -> String {
        self.expect("__gen.subschema_for::<crate::");
        let (path, rest) = self.text.split_once(">()").expect("the end of a path");
        self.text = rest;
        path.to_owned()
    }

    fn string(&mut self) -> String {
        self.expect("\"");
        let mut out = String::new();
        let mut chars = self.text.char_indices();
        loop {
            match chars.next().expect("the end of a text") {
                (at, '"') => {
                    self.text = &self.text[at + 1..];
                    return out;
                }
                (_, '\\') => match chars.next().expect("an escape").1 {
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    'r' => out.push('\r'),
                    'u' => {
                        let code: String = chars
                            .by_ref()
                            .map(|(_, c)| c)
                            .skip(1)
                            .take_while(|c| *c != '}')
                            .collect();
                        out.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                    }
                    c => out.push(c),
                },
                (_, c) => out.push(c),
            }
        }
    }
}
