//! Joins definitions and messages into the types of the table.

use std::collections::BTreeMap;

use crate::{
    openapi::{Definition, Schema},
    protobuf::{self, Message, marker, normalize, prose},
    supplement::Facts,
};

/// One type of the table.
#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) atomic: bool,
    pub(crate) gvk: Option<[String; 3]>,
    pub(crate) fields: Vec<Field>,
}

/// One field of a type.
#[derive(Debug, Default)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Field numbers: those of the embedded messages that JSON does not show, then its own. Empty:
    /// not in protobuf.
    pub(crate) tags: Vec<u16>,
    pub(crate) shape: Shape,
    pub(crate) element: Element,
    pub(crate) required: bool,
    /// Zero is the same as absent.
    pub(crate) plain: bool,
    /// An empty text is not the same as absent.
    pub(crate) pointer: bool,
    pub(crate) map_type: String,
    pub(crate) list_type: String,
    pub(crate) list_keys: String,
    pub(crate) patch_strategy: String,
    pub(crate) merge_key: String,
    pub(crate) default: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Shape {
    #[default]
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Element {
    #[default]
    Any,
    Simple(&'static str),
    Object(String),
}

/// The types, ordered by name.
pub(crate) fn join(
    definitions: &[Definition],
    messages: &BTreeMap<String, Message>,
    facts: &Facts,
) -> Vec<Type> {
    let names: BTreeMap<&str, &str> = definitions
        .iter()
        .map(|d| (d.path.as_str(), d.name.as_str()))
        .collect();
    let joiner = Joiner {
        names,
        messages,
        facts,
    };
    let mut types: Vec<Type> = definitions.iter().map(|d| joiner.definition(d)).collect();
    types.extend(definitions.iter().filter_map(|d| joiner.list(d)));
    types.extend(facts.messages.iter().map(|m| joiner.new_message(m)));
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types
}

struct Joiner<'a> {
    names: BTreeMap<&'a str, &'a str>,
    messages: &'a BTreeMap<String, Message>,
    facts: &'a Facts,
}

impl Joiner<'_> {
    fn definition(&self, definition: &Definition) -> Type {
        let message = self.message(&definition.path);
        let mut fields = Vec::new();
        if let Some(Schema::Object(properties)) = definition.schema.get("properties") {
            for (name, schema) in properties {
                fields.push(self.field(definition, name, schema, message));
            }
        }
        if let Some(Schema::Array(required)) = definition.schema.get("required") {
            for field in &mut fields {
                field.required = required
                    .iter()
                    .any(|r| matches!(r, Schema::Text(t) if *t == field.name));
            }
        }
        for field in &mut fields {
            // k8s-openapi makes the metadata of every kind required; upstream does not.
            field.required &= definition.gvk.is_none() || field.name != "metadata";
            let fact = self
                .facts
                .fields
                .get(&(definition.name.clone(), field.name.clone()));
            let says = |word: &str| fact.is_some_and(|f| f.markers.iter().any(|m| m == word));
            field.required = (field.required || says("+required")) && !says("+optional");
            field.plain = says("+plain");
            field.pointer = says("+pointer");
        }
        Type {
            name: definition.name.clone(),
            description: definition.schema.text("description").to_owned(),
            atomic: message.is_some_and(|m| marker(&m.docs, "structType").any(|v| v == "atomic")),
            gvk: definition.gvk.clone(),
            fields,
        }
    }

    /// The message of a Rust path. Where a version graduated after `k8s-pb` was published, the one
    /// of the version before it: graduating keeps the numbers.
    fn message(&self, path: &str) -> Option<&Message> {
        let key = protobuf::key(path);
        let same_version = self.messages.get(&key);
        let (module, name) = key.rsplit_once("::")?;
        let (group, _) = module.rsplit_once("::")?;
        let others = [
            "v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1",
        ];
        same_version.or_else(|| {
            others
                .iter()
                .find_map(|v| self.messages.get(&format!("{group}::{v}::{name}")))
        })
    }

    fn field(
        &self,
        definition: &Definition,
        name: &str,
        schema: &Schema,
        message: Option<&Message>,
    ) -> Field {
        let (shape, element) = self.kind(schema, &definition.name, name);
        let description = match schema {
            Schema::Ref(_, description) => description.clone(),
            other => other.text("description").to_owned(),
        };
        let (mut tags, mut docs) = message
            .and_then(|m| self.find(m, &normalize(name), 0))
            .unwrap_or_default();
        if let Some(fact) = self
            .facts
            .fields
            .get(&(definition.name.clone(), name.to_owned()))
        {
            if !fact.tags.is_empty() {
                tags.clone_from(&fact.tags);
            }
            docs.extend(fact.markers.iter().cloned());
        }
        let last = |name| marker(&docs, name).last().unwrap_or_default().to_owned();
        let default = last("default");
        Field {
            name: name.to_owned(),
            description,
            tags,
            shape,
            element,
            required: false,
            plain: false,
            pointer: false,
            map_type: marker(&docs, "mapType")
                .chain(marker(&docs, "structType"))
                .last()
                .unwrap_or_default()
                .to_owned(),
            list_type: last("listType"),
            list_keys: marker(&docs, "listMapKey").collect::<Vec<_>>().join(","),
            patch_strategy: last("patchStrategy"),
            merge_key: last("patchMergeKey"),
            // That is the name of a Go constant: its value is not in sight here.
            default: if default.starts_with("ref(") {
                String::new()
            } else {
                default
            },
        }
    }

    /// Tags and docs of a field by its normalized name: in the message itself, else in a message
    /// that it embeds without a name of its own in JSON (a volume's source, a probe's handler).
    fn find(&self, message: &Message, name: &str, depth: u8) -> Option<(Vec<u16>, Vec<String>)> {
        if let Some(field) = message.fields.get(name) {
            return Some((vec![field.tag], field.docs.clone()));
        }
        if depth == 2 {
            return None;
        }
        message.fields.values().find_map(|outer| {
            let inner = self.messages.get(outer.message.as_ref()?)?;
            let (mut tags, docs) = self.find(inner, name, depth + 1)?;
            tags.insert(0, outer.tag);
            Some((tags, docs))
        })
    }

    fn kind(&self, schema: &Schema, owner: &str, field: &str) -> (Shape, Element) {
        match schema.text("type") {
            "array" => {
                let items = schema.get("items").expect("items of an array");
                (Shape::List, self.element(items, owner, field))
            }
            "object" => match schema.get("additionalProperties") {
                Some(values) => (Shape::Map, self.element(values, owner, field)),
                None => (Shape::One, Element::Any),
            },
            _ => (Shape::One, self.element(schema, owner, field)),
        }
    }

    fn element(&self, schema: &Schema, owner: &str, field: &str) -> Element {
        if let Schema::Ref(path, _) = schema {
            return self.reference(path);
        }
        Element::Simple(match (schema.text("type"), schema.text("format")) {
            ("string", "byte") => "Bytes",
            ("string", "date-time") => "Time",
            ("string", _) => "String",
            ("integer", "int32") => "Int32",
            ("integer", _) => "Int64",
            ("number", _) => "Double",
            ("boolean", _) => "Bool",
            ("array", _) => "StringList",
            (other, _) => panic!("{owner}.{field}: no element for type {other:?}"),
        })
    }

    fn reference(&self, path: &str) -> Element {
        let (_, last) = path.rsplit_once("::").unwrap_or(("", path));
        Element::Simple(match last {
            "Time" => "Time",
            "MicroTime" => "MicroTime",
            "Quantity" => "Quantity",
            "IntOrString" => "IntOrString",
            "RawExtension" => "RawExtension",
            "FieldsV1" => "FieldsV1",
            "JSON" => "Json",
            "JSONSchemaPropsOrArray" => "SchemaOrArray",
            "JSONSchemaPropsOrBool" => "SchemaOrBool",
            "JSONSchemaPropsOrStringArray" => "SchemaOrStringArray",
            _ => {
                let name = self
                    .names
                    .get(path)
                    .unwrap_or_else(|| panic!("no definition at {path}"));
                return Element::Object((*name).to_owned());
            }
        })
    }

    /// The list kind that belongs to a kind: `k8s-openapi` has one generic list instead.
    fn list(&self, definition: &Definition) -> Option<Type> {
        let kind = definition.list_kind.as_ref()?;
        let [group, version, _] = definition.gvk.as_ref()?;
        let (package, single) = definition.name.rsplit_once('.')?;
        let (module, _) = definition.path.rsplit_once("::")?;
        let message = self
            .messages
            .get(&protobuf::key(&format!("{module}::{kind}")));
        let docs = |name: &str| {
            message
                .and_then(|m| m.fields.get(name))
                .map(|f| prose(&f.docs))
                .unwrap_or_default()
        };
        let text = |name: &str, description: &str| Field {
            name: name.to_owned(),
            description: description.to_owned(),
            element: Element::Simple("String"),
            ..Field::default()
        };
        let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
        // The numbers of the two are the same in every list.
        let field = |name: &str, tag, shape, element: &str, required| Field {
            name: name.to_owned(),
            description: docs(name),
            tags: vec![tag],
            shape,
            element: Element::Object(element.to_owned()),
            required,
            ..Field::default()
        };
        let described = message.map(|m| prose(&m.docs)).filter(|d| !d.is_empty());
        Some(Type {
            name: format!("{package}.{kind}"),
            description: described.unwrap_or_else(|| format!("{kind} is a list of {single}")),
            atomic: false,
            gvk: Some([group.clone(), version.clone(), kind.clone()]),
            fields: vec![
                text("apiVersion", API_VERSION),
                field("items", 2, Shape::List, &definition.name, true),
                text("kind", KIND),
                field("metadata", 1, Shape::One, meta, false),
            ],
        })
    }

    /// A type that only the supplement knows; its descriptions come from the message, if there is
    /// one.
    fn new_message(&self, (name, fields): &(String, Vec<crate::supplement::NewField>)) -> Type {
        let (package, kind) = name.rsplit_once('.').expect("a package");
        let module = package.trim_start_matches("io.k8s.").replace('.', "::");
        let message = self.message(&format!("{module}::{kind}"));
        let fields = fields.iter().map(|new| {
            let docs = message
                .and_then(|m| m.fields.get(&normalize(&new.name)))
                .map(|f| f.docs.clone());
            let docs = docs.unwrap_or_default();
            let (shape, kind) = match (new.kind.strip_prefix("[]"), new.kind.strip_prefix("{}")) {
                (Some(kind), _) => (Shape::List, kind),
                (_, Some(kind)) => (Shape::Map, kind),
                _ => (Shape::One, new.kind.as_str()),
            };
            let element = match kind {
                "string" => Element::Simple("String"),
                "bool" => Element::Simple("Bool"),
                "int32" => Element::Simple("Int32"),
                "int64" => Element::Simple("Int64"),
                "bytes" => Element::Simple("Bytes"),
                "RawExtension" => Element::Simple("RawExtension"),
                "StringList" => Element::Simple("StringList"),
                name => Element::Object(name.to_owned()),
            };
            Field {
                name: new.name.clone(),
                description: prose(&docs),
                tags: if new.tag == 0 {
                    Vec::new()
                } else {
                    vec![new.tag]
                },
                shape,
                element,
                required: new.required,
                list_type: marker(&docs, "listType")
                    .last()
                    .unwrap_or_default()
                    .to_owned(),
                ..Field::default()
            }
        });
        let mut fields: Vec<Field> = fields.collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let description = message.map(|m| prose(&m.docs)).unwrap_or_default();
        // What an object is stands outside its message: a `kind` with a number is an ordinary
        // field.
        let is_kind = fields.iter().any(|f| f.name == "kind" && f.tags.is_empty());
        let gvk = is_kind.then(|| {
            let (group, version) = match package.strip_prefix("io.k8s.api.") {
                Some(rest) => rest.rsplit_once('.').expect("a version"),
                None => ("meta", "v1"),
            };
            let group = if group == "admission" || group == "meta" {
                format!("{group}.k8s.io")
            } else {
                group.to_owned()
            };
            [group, version.to_owned(), kind.to_owned()]
        });
        Type {
            name: name.clone(),
            description,
            atomic: false,
            gvk,
            fields,
        }
    }
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
