//! The expressions of a MutatingAdmissionPolicy, and what they make of an object.
//!
//! Source: `.../policy/mutating/compilation.go`, `.../mutating/patch` at v1.37.

use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    patch::{apply, json},
    resource::Gvk,
    schema::Schema,
};
use coracle_cel::{
    admission::{Activation, Budget, Compiler, Expression, Names, Sort, Variable},
    types::Type,
    value::json::Integers,
};
use coracle_registry::{
    beside::Weight,
    value::{items, string},
};
use serde_json::Value;

use super::view::Values;
use crate::matching::MatchConditions;

/// What is evaluated for a policy.
pub(super) struct Mutator {
    pub(super) conditions: MatchConditions,
    variables: Vec<Variable>,
    pub(super) mutations: Vec<Mutation>,
    /// Whether it looks again at what others have made of its work.
    pub(super) is_reinvoked: bool,
    /// Of an evaluation.
    pub(super) weight: Weight,
}

/// One step of a policy.
pub(super) struct Mutation {
    expression: Expression,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ApplyConfiguration,
    JsonPatch,
}

/// Of what kind an object is, and what objects of it look like.
pub(super) struct Target<'a> {
    pub(super) gvk: &'a Gvk,
    pub(super) schema: &'a Schema,
}

impl Mutator {
    /// Compiles a policy.
    pub(super) fn compile(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let has_params = spec["paramKind"].is_object();
        let mut compiler = Compiler::new(Names::dynamic(has_params));
        for variable in items(&spec["variables"]) {
            let (name, text) = (string(&variable["name"]), string(&variable["expression"]));
            compiler.add_variable(name, text, true);
        }
        let mutations = items(&spec["mutations"]).iter().map(|mutation| {
            let (kind, field, result) = match string(&mutation["patchType"]) {
                "ApplyConfiguration" => (
                    Kind::ApplyConfiguration,
                    "applyConfiguration",
                    Type::object("Object"),
                ),
                _ => (
                    Kind::JsonPatch,
                    "jsonPatch",
                    Type::list(Type::object("JSONPatch")),
                ),
            };
            let sort = Sort {
                results: &[result],
                has_authorizer: true,
                has_patches: true,
            };
            let text = string(&mutation[field]["expression"]).trim();
            Mutation {
                expression: compiler.compile(text, sort),
                kind,
            }
        });
        let mutations = mutations.collect();
        Self {
            conditions: MatchConditions::read(&spec["matchConditions"], has_params),
            variables: compiler.into_variables(),
            mutations,
            is_reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            weight: Weight::default(),
        }
    }

    /// What a mutation makes of `object`, which `values` show.
    ///
    /// # Errors
    /// In upstream's words.
    pub(super) fn mutated<'v>(
        &'v self,
        mutation: &'v Mutation,
        values: &'v Values<'v>,
        (object, target): (&Value, &Target<'_>),
    ) -> Result<Value, String> {
        if let Some(fault) = mutation.expression.fault() {
            return Err(fault.to_string());
        }
        let activation = Activation::new(&values.all, &self.variables);
        let value = activation.evaluate(&mutation.expression, &mut Budget::POLICY.clone());
        let value = value.map_err(|over| over.to_string())??;
        match mutation.kind {
            Kind::ApplyConfiguration => {
                let patch = value.to_json(Integers::Numbers)?;
                applied(object, patch, target)
            }
            Kind::JsonPatch => {
                let patch = value.to_json(Integers::SafeNumbers)?;
                let patched = json::apply_value(object, &patch);
                let patched = patched.map_err(|why| format!("JSON Patch: {why}"))?;
                // A test that does not hold: nothing is to be done.
                Ok(patched.unwrap_or_else(|| object.clone()))
            }
        }
    }
}

impl Mutation {
    /// What becomes of fields that the kind does not have. Merges have refused them before, and
    /// custom resources are pruned.
    pub(super) fn unknown_fields(&self, target: &Target<'_>) -> FieldValidation {
        match (self.kind, target.schema) {
            (Kind::JsonPatch, Schema::BuiltIn(_)) => FieldValidation::Strict,
            _ => FieldValidation::Ignore,
        }
    }
}

fn applied(object: &Value, mut patch: Value, target: &Target<'_>) -> Result<Value, String> {
    for field in ["apiVersion", "kind"] {
        patch[field] = object[field].clone();
    }
    // What the kind does not have is refused, not left out.
    let body = serde_json::to_vec(&patch).map_err(|error| error.to_string())?;
    decode::decode_along(
        target.schema,
        &body,
        ContentType::Json,
        target.gvk,
        FieldValidation::Strict,
    )
    .map_err(|status| {
        let why = status.message;
        format!("error applying patch: failed to convert patch object to typed object: {why}")
    })?;
    apply::merge(target.schema, object, &patch)
        .map_err(|why| format!("error applying patch: {why}"))
}
