//! Whether the expressions of a validating policy fit the kinds that it is about: told in its
//! status, and of no consequence.
//!
//! Source: `.../policy/validating/typechecking.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use coracle_api::{
    resource::Gvk,
    schema::{self, Schema, Type},
};
use coracle_cel::{
    admission::{Compiler, Names, Sort},
    schema::{DeclType, DeclTypes, decl_type},
};
use coracle_registry::{
    resource::Resource,
    value::{items, string},
};
use serde_json::{Map, Value, json};

use crate::kinds::Kinds;

/// The most kinds that a policy is held against.
const MOST_KINDS: usize = 10;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

const ANY: Sort<'_> = Sort {
    results: &[],
    has_authorizer: true,
    has_patches: false,
};

/// What does not fit, as `status.typeChecking.expressionWarnings` has it.
pub fn type_warnings(policy: &Value, kinds: &dyn Kinds) -> Vec<Value> {
    let spec = &policy["spec"];
    let params = params_type(&spec["paramKind"], kinds);
    let checked = kinds_of(spec, kinds).into_iter();
    let compilers: Vec<(Gvk, Compiler)> = checked
        .filter_map(|(gvk, resource)| {
            let object = object_type(&resource, &gvk.kind)?;
            Some((gvk, compiler(spec, &object, params.as_ref())))
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in items(&spec["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = string(&validation[field]);
            let told: Vec<String> = compilers
                .iter()
                .filter(|_| !text.is_empty())
                .filter_map(|(gvk, compiler)| misfit(gvk, compiler, text))
                .collect();
            if !told.is_empty() {
                warnings.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{field}"),
                    "warning": told.join("\n"),
                }));
            }
        }
    }
    warnings
}

fn misfit(gvk: &Gvk, compiler: &Compiler, text: &str) -> Option<String> {
    let expression = compiler.compile(text, ANY);
    let why = expression.fault()?.to_string();
    let why = why.strip_prefix("compilation failed: ").unwrap_or(&why);
    Some(format!("{gvk}: {why}\n"))
}

fn compiler(spec: &Value, object: &Arc<DeclType>, params: Option<&Arc<DeclType>>) -> Compiler {
    let names = Names {
        object: object.checked(),
        params: params.map(|of| of.checked()),
        types: Some(Arc::new(DeclTypes::new([object].into_iter().chain(params)))),
    };
    let mut compiler = Compiler::new(names);
    for variable in items(&spec["variables"]) {
        let (name, text) = (string(&variable["name"]), string(&variable["expression"]));
        compiler.add_variable(name, text, false);
    }
    compiler
}

/// The type of parameters. Of those of a kind that nobody knows expressions know nothing, as
/// upstream.
fn params_type(kind: &Value, kinds: &dyn Kinds) -> Option<Arc<DeclType>> {
    let api_version = kind.is_object().then(|| string(&kind["apiVersion"]))?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = kinds.of_kind(&Gvk::new(group, version, string(&kind["kind"])))?;
    object_type(&resource, &format!("{}Params", string(&kind["kind"])))
}

/// The kinds that the rules name one by one, in order.
fn kinds_of(spec: &Value, kinds: &dyn Kinds) -> BTreeMap<Gvk, Arc<Resource>> {
    let mut found = BTreeMap::new();
    for rule in items(&spec["matchConstraints"]["resourceRules"]) {
        let named = |field: &str| {
            let mut texts: Vec<&str> = items(&rule[field]).iter().map(string).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (named("apiGroups"), named("apiVersions"));
        if groups
            .iter()
            .chain(&versions)
            .any(|text| text.contains('*'))
        {
            continue;
        }
        let resources = named("resources").into_iter();
        let resources: Vec<&str> = resources
            .filter(|text| !text.contains(['*', '/']))
            .collect();
        for group in &groups {
            for version in &versions {
                for plural in &resources {
                    if let Some(resource) = kinds.at(group, version, plural)
                        && found.len() < MOST_KINDS
                    {
                        found.insert(resource.gvk.clone(), resource);
                    }
                }
            }
        }
    }
    found
}

fn object_type(resource: &Resource, name: &str) -> Option<Arc<DeclType>> {
    let schema = match resource.schema.as_ref()? {
        Schema::BuiltIn(ty) => resolved(*ty, &mut Vec::new()),
        Schema::Structural(schema) => with_metadata(schema.published().clone()),
    };
    decl_type(&schema, name, true)
}

/// A schema of a custom resource with what every object has.
fn with_metadata(mut schema: Value) -> Value {
    if let Some(ty) = schema::table().by_name(OBJECT_META) {
        schema["properties"]["metadata"] = resolved(ty, &mut Vec::new());
    }
    for field in ["apiVersion", "kind"] {
        schema["properties"][field] = json!({"type": "string"});
    }
    schema
}

/// The schema of a type with all that it refers to; where a type has itself in it, anything fits.
fn resolved(ty: Type, within: &mut Vec<Type>) -> Value {
    if within.contains(&ty) {
        return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    within.push(ty);
    let mut schema = schema::openapi_v3_schema(ty, "");
    inline(&mut schema, within);
    within.pop();
    schema
}

fn inline(schema: &mut Value, within: &mut Vec<Type>) {
    let Value::Object(map) = schema else { return };
    if let Some(ty) = reference(map).and_then(|name| schema::table().by_name(&name)) {
        map.remove("allOf");
        map.remove("$ref");
        if let Value::Object(inner) = resolved(ty, within) {
            for (name, value) in inner {
                map.entry(name).or_insert(value);
            }
        }
    }
    // What is a number or a text may be compared with both.
    if map.contains_key("oneOf") {
        map.insert("x-kubernetes-int-or-string".to_owned(), true.into());
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(below) {
            inline(below, within);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for property in properties.values_mut() {
            inline(property, within);
        }
    }
}

fn reference(map: &Map<String, Value>) -> Option<String> {
    let plain = map.get("$ref").and_then(Value::as_str);
    let wrapped = map.get("allOf").and_then(|all| all[0]["$ref"].as_str());
    plain.or(wrapped).map(str::to_owned)
}
