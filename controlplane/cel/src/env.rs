//! What an expression may name: variables, functions, and types with fields.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

pub use crate::types::Types;
use crate::{
    function::Function,
    functions,
    types::{self, Type},
};

/// One way to call a function.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether the first argument stands before the dot.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// What does it.
    pub(crate) function: &'static Function,
}

/// A function with all its ways to call it.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Declared>> = LazyLock::new(|| {
    let mut declared: HashMap<&'static str, Declared> = HashMap::new();
    for function in functions::all() {
        let overloads = function.overloads.iter();
        let overloads = overloads.map(|declaration| overload(function, declaration));
        let entry = declared.entry(function.name).or_insert_with(|| Declared {
            name: function.name,
            overloads: Vec::new(),
        });
        entry.overloads.extend(overloads);
    }
    declared
});

/// Types that expressions name as values.
static TYPE_NAMES: LazyLock<HashMap<&'static str, Type>> = LazyLock::new(|| {
    let list = Type::list(Type::Param("A".into()));
    let map = Type::map(Type::Param("A".into()), Type::Param("B".into()));
    let optional = Type::optional(Type::Param("A".into()));
    HashMap::from([
        ("bool", Type::Bool),
        ("bytes", Type::Bytes),
        ("double", Type::Double),
        ("google.protobuf.Duration", Type::Duration),
        ("google.protobuf.Timestamp", Type::Timestamp),
        ("int", Type::Int),
        ("list", list),
        ("map", map),
        ("net.CIDR", types::parse("net.CIDR")),
        ("net.IP", types::parse("net.IP")),
        ("null_type", Type::Null),
        ("optional_type", optional),
        ("string", Type::String),
        ("type", Type::Type(None)),
        ("uint", Type::Uint),
    ])
});

/// `(id, ".string, int -> bool")`: a dot before the first argument makes it the target.
fn overload(
    function: &'static Function,
    (id, signature): &(&'static str, &'static str),
) -> Overload {
    let (args, result) = signature
        .split_once("->")
        .expect("each signature has an arrow");
    let args = args.trim();
    let member = args.starts_with('.');
    let args = types::split(args.trim_start_matches('.'));
    Overload {
        id,
        member,
        args: args.into_iter().map(types::parse).collect(),
        result: types::parse(result.trim()),
        function,
    }
}

/// What expressions are checked against. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<(Arc<str>, Type)>,
    types: Vec<Arc<dyn Types>>,
    mixed: bool,
    /// Where the variable stands whose fields are other expressions, and which they are.
    composed: Option<(usize, Arc<Composition>)>,
}

/// The fields of one variable, each of which is the value of another expression that is evaluated
/// when it is asked for. Fields are added as they are compiled: an expression sees those before it.
#[derive(Debug, Default)]
pub struct Composition(RwLock<HashMap<Arc<str>, (usize, Type)>>);

/// The type of the variable that has them.
const COMPOSED: &str = "kubernetes.variables";

impl Composition {
    /// Adds a field that is evaluated at a place; one of the same name is no longer seen.
    pub fn add(&self, name: Arc<str>, place: usize, of: &Type) {
        let mut fields = self.0.write().unwrap_or_else(PoisonError::into_inner);
        fields.insert(name, (place, composed_type(of)));
    }

    fn field(&self, name: &str) -> Option<(usize, Type)> {
        let fields = self.0.read().unwrap_or_else(PoisonError::into_inner);
        fields.get(name).cloned()
    }
}

/// What is left of a type in a field: objects and what has functions of its own become dynamic.
fn composed_type(of: &Type) -> Type {
    match of {
        Type::List(element) => Type::list(composed_type(element)),
        Type::Map(entry) => Type::map(composed_type(&entry.0), composed_type(&entry.1)),
        Type::Object(_) | Type::Opaque(..) | Type::Type(_) | Type::Param(_) | Type::Error => {
            Type::Dyn
        }
        other => other.clone(),
    }
}

/// What a name stands for.
pub(crate) enum Named<'a> {
    /// A variable by its place among the values of an evaluation.
    Variable(usize, &'a Type),
    /// A type as a value.
    Type(&'a Type),
}

impl Env {
    /// With no variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more variable. Evaluations take values in the order of these calls.
    #[must_use]
    pub fn variable(mut self, name: &str, of: Type) -> Self {
        self.variables.push((name.into(), of));
        self
    }

    /// With types that have fields.
    #[must_use]
    pub fn types(mut self, types: Arc<dyn Types>) -> Self {
        self.types.push(types);
        self
    }

    /// With one more variable, whose fields are other expressions. It has no value by itself.
    #[must_use]
    pub fn composed(mut self, name: &str, of: Arc<Composition>) -> Self {
        self.composed = Some((self.variables.len(), of));
        self.variable(name, Type::object(COMPOSED))
    }

    /// With lists and maps whose elements are of different types, which Kubernetes refuses.
    #[must_use]
    pub fn mixed_literals(mut self) -> Self {
        self.mixed = true;
        self
    }

    pub(crate) fn mixed(&self) -> bool {
        self.mixed
    }

    /// The names of variables, in the order of their values.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|(name, _)| &**name)
    }

    pub(crate) fn named(&self, name: &str) -> Option<Named<'_>> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let mut variables = self.variables.iter().enumerate();
        let variable = variables.find(|(_, (known, _))| **known == *name);
        if let Some((at, (_, of))) = variable {
            return Some(Named::Variable(at, of));
        }
        TYPE_NAMES.get(name).map(Named::Type)
    }

    /// The place of what is evaluated for a field of the variable at a place.
    pub(crate) fn composed_at(&self, variable: usize, field: &str) -> Option<usize> {
        let (at, composition) = self.composed.as_ref()?;
        let found = (*at == variable).then(|| composition.field(field));
        found.flatten().map(|(place, _)| place)
    }

    pub(crate) fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        if let Some((_, composition)) = self.composed.as_ref().filter(|_| type_name == COMPOSED) {
            return composition.field(field).map(|(_, of)| of);
        }
        let mut types = self.types.iter();
        types.find_map(|types| types.field(type_name, field))
    }

    pub(crate) fn constructible(&self, type_name: &str) -> bool {
        let mut types = self.types.iter();
        types.any(|types| types.constructible(type_name))
    }
}

/// A function by its name.
pub(crate) fn function(name: &str) -> Option<&'static Declared> {
    FUNCTIONS.get(name.strip_prefix('.').unwrap_or(name))
}
