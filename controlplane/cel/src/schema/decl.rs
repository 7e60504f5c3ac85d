//! Types of data.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use crate::{
    range::Range,
    types::{Type, Types},
};

/// The type of a piece of data.
#[derive(Debug)]
pub struct DeclType {
    /// What it is.
    pub kind: DeclKind,
    /// The most characters, elements or entries it can have; 0 for what has none of them.
    pub max_elements: u64,
    /// Whether it can be null.
    pub nullable: bool,
    /// The fewest bytes it takes.
    pub(crate) min_serialized: u64,
}

/// How lists of a type are compared and joined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    /// In order.
    #[default]
    Atomic,
    /// As sets.
    Set,
    /// By the keys of their elements, named as in JSON.
    Map(Vec<String>),
}

/// What a type is.
#[derive(Debug)]
pub enum DeclKind {
    /// Anything.
    Dyn,
    /// `x-kubernetes-int-or-string`
    IntOrString,
    /// `boolean`
    Bool,
    /// `integer`
    Int,
    /// `number`
    Double,
    /// `string`
    String,
    /// Base64.
    Bytes,
    /// A date, with a time or without.
    Timestamp,
    /// `1h2m`
    Duration,
    /// `array`
    List {
        /// Of what.
        element: Arc<DeclType>,
        /// How it is compared.
        list: ListKind,
    },
    /// `additionalProperties`
    Map {
        /// Of what; the keys are texts.
        value: Arc<DeclType>,
    },
    /// `properties`
    Object {
        /// The name of the type.
        name: Arc<str>,
        /// By their escaped names.
        fields: BTreeMap<Box<str>, DeclField>,
    },
}

/// A field of an object.
#[derive(Debug)]
pub struct DeclField {
    /// Its name in JSON.
    pub json_name: Box<str>,
    /// Its type.
    pub of: Arc<DeclType>,
}

/// A field by its escaped name. One that is called like a word of the language may also be selected
/// by that word.
pub(crate) fn find_field<'f>(
    fields: &'f BTreeMap<Box<str>, DeclField>,
    name: &str,
) -> Option<&'f DeclField> {
    fields.get(name).or_else(|| {
        let reserved = crate::lexer::is_reserved(name);
        reserved
            .then(|| fields.get(&*format!("__{name}__")))
            .flatten()
    })
}

static ANY: LazyLock<DeclType> = LazyLock::new(|| DeclType::new(DeclKind::Dyn));

impl DeclType {
    /// A type without a bound.
    pub fn new(kind: DeclKind) -> Self {
        Self {
            kind,
            max_elements: u64::MAX,
            nullable: true,
            min_serialized: 1,
        }
    }

    /// The type of what has no schema.
    pub fn any() -> &'static Self {
        &ANY
    }

    /// The fewest bytes that a value takes.
    pub fn min_serialized(&self) -> u64 {
        self.min_serialized
    }

    pub(crate) fn object_name(&self) -> Option<&Arc<str>> {
        match &self.kind {
            DeclKind::Object { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The type of elements.
    pub(crate) fn element(&self) -> &Self {
        match &self.kind {
            DeclKind::List { element, .. } => element,
            _ => Self::any(),
        }
    }

    /// As the checker knows it.
    pub fn checked(&self) -> Type {
        match &self.kind {
            DeclKind::Dyn | DeclKind::IntOrString => Type::Dyn,
            DeclKind::Bool => Type::Bool,
            DeclKind::Int => Type::Int,
            DeclKind::Double => Type::Double,
            DeclKind::String => Type::String,
            DeclKind::Bytes => Type::Bytes,
            DeclKind::Timestamp => Type::Timestamp,
            DeclKind::Duration => Type::Duration,
            DeclKind::List { element, .. } => Type::list(element.checked()),
            DeclKind::Map { value } => Type::map(Type::String, value.checked()),
            DeclKind::Object { name, .. } => Type::Object(name.clone()),
        }
    }

    /// The size of what is at a path, as estimates of costs name it: of a variable of this type,
    /// or of what is in it.
    pub fn size_at(&self, path: &[Arc<str>]) -> Option<Range> {
        let mut of = self;
        let (_variable, steps) = path.split_first()?;
        for step in steps {
            of = match (&of.kind, &**step) {
                (DeclKind::List { element, .. }, "@items" | "@values") => element,
                (DeclKind::Map { value }, "@items" | "@values") => value,
                (DeclKind::Map { .. }, "@keys") => return Some(Range { min: 0, max: 0 }),
                (DeclKind::Object { fields, .. }, name) => &find_field(fields, name)?.of,
                _ => return None,
            };
        }
        Some(Range {
            min: 0,
            max: of.max_elements,
        })
    }
}

/// The objects within a type, by their names.
#[derive(Debug)]
pub struct DeclTypes(HashMap<Arc<str>, Arc<DeclType>>);

impl DeclTypes {
    /// All objects' types of these types and what is in them.
    pub fn new<'a>(types: impl IntoIterator<Item = &'a Arc<DeclType>>) -> Self {
        let mut found = HashMap::new();
        for of in types {
            collect(of, &mut found);
        }
        Self(found)
    }
}

fn collect(of: &Arc<DeclType>, found: &mut HashMap<Arc<str>, Arc<DeclType>>) {
    match &of.kind {
        DeclKind::List { element, .. } => collect(element, found),
        DeclKind::Map { value } => collect(value, found),
        DeclKind::Object { name, fields } if !found.contains_key(name) => {
            found.insert(name.clone(), of.clone());
            for field in fields.values() {
                collect(&field.of, found);
            }
        }
        _ => {}
    }
}

impl Types for DeclTypes {
    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        match &self.0.get(type_name)?.kind {
            DeclKind::Object { fields, .. } => {
                find_field(fields, field).map(|field| field.of.checked())
            }
            _ => None,
        }
    }
}
