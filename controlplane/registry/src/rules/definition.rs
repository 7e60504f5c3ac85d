//! What of the rules of a definition is refused, and what they may cost.

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::{
    evaluate,
    rule::{Compiled, Rule},
    tree::{self, Elements, Node},
};

/// What one expression may cost at most, for all values it can be evaluated on.
const MOST_OF_ONE: u64 = 10_000_000;
/// What all expressions of a schema may cost at most.
const MOST_OF_ALL: u64 = 100_000_000;
/// How many of the dearest are told if all cost too much.
const MOST_TOLD: usize = 4;
/// The most bytes of a request.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// What is wrong with the rules of a schema, and with defaults by them. `is_sound` says of which
/// parts of it, by their paths, the rules can be compiled.
pub(crate) fn errors(schema: &Value, path: &str, is_sound: impl Fn(&str) -> bool) -> FieldErrors {
    let mut found = Found {
        is_sound: &is_sound,
        of_fields: FieldErrors::new(),
        errors: FieldErrors::new(),
        total: 0,
        dearest: Vec::new(),
    };
    let Some(root) = tree::read(schema) else {
        return found.errors;
    };
    let place = Place {
        path: path.to_owned(),
        most: Some(1),
        uncorrelatable: None,
    };
    found.node(&root, &place);
    found.all(path);
    if found.errors.is_empty() && found.of_fields.is_empty() && is_sound(path) {
        found.defaults(&root, path);
    }
    let mut errors = found.of_fields;
    errors.extend(found.errors);
    errors
}

/// A part of a schema.
struct Place {
    path: String,
    /// How many values of it an object has at most; `None` if there is no bound.
    most: Option<u64>,
    /// The list whose elements nobody can tell apart, if it is in one.
    uncorrelatable: Option<String>,
}

struct Found<'a> {
    is_sound: &'a dyn Fn(&str) -> bool,
    /// Told first, as all that is no expression.
    of_fields: FieldErrors,
    errors: FieldErrors,
    total: u64,
    dearest: Vec<(String, u64)>,
}

impl Place {
    fn child(&self, node: &Node, step: &str) -> Self {
        let most = self.most.zip(node.most);
        Self {
            path: format!("{}.{step}", self.path),
            most: most.map(|(most, each)| most.saturating_mul(each)),
            uncorrelatable: self.uncorrelatable.clone(),
        }
    }
}

impl Found<'_> {
    /// What is in it first, as upstream. Whether its fields' paths are in order: if not, nothing
    /// is compiled around them.
    fn node(&mut self, node: &Node, place: &Place) -> bool {
        let mut is_sound = (self.is_sound)(&place.path);
        if let Some(additional) = &node.additional {
            is_sound &= self.node(additional, &place.child(node, "additionalProperties"));
        }
        for (name, property) in &node.properties {
            let step = format!("properties[{name}]");
            is_sound &= self.node(property, &place.child(node, &step));
        }
        if let Some(items) = &node.items {
            let mut below = place.child(node, "items");
            if !matches!(node.elements, Elements::Keys(_)) {
                below
                    .uncorrelatable
                    .get_or_insert_with(|| place.path.clone());
            }
            is_sound &= self.node(items, &below);
        }
        for (at, rule) in node.rules.iter().enumerate() {
            if rule.field.is_none() {
                let path = format!("{}.x-kubernetes-validations[{at}].fieldPath", place.path);
                let what = "fieldPath must be a valid path";
                self.of_fields.invalid(path, &json!(rule.field_path), what);
                is_sound = false;
            }
        }
        if is_sound {
            self.rules(node, place);
        }
        is_sound
    }

    fn rules(&mut self, node: &Node, place: &Place) {
        let path = format!("{}.x-kubernetes-validations", place.path);
        let Some(of) = &node.of else {
            if node.is_ruled {
                let what = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
                self.errors.internal(path, what);
            }
            return;
        };
        // A comma stands between two values.
        let most = place
            .most
            .unwrap_or_else(|| MAX_REQUEST / (of.min_serialized() + 1));
        for (at, rule) in node.rules.iter().enumerate() {
            self.rule(rule, &format!("{path}[{at}]"), most, place);
        }
    }

    fn rule(&mut self, rule: &Rule, path: &str, most: u64, place: &Place) {
        let at = format!("{path}.rule");
        match &rule.program {
            Ok(Compiled { cost, .. }) => {
                self.cost(&at, "rule", cost.saturating_mul(most));
            }
            Err(why) => self.errors.invalid_text(&*at, &rule.shown(), why),
        }
        let of_message = format!("{path}.messageExpression");
        match &rule.message_program {
            Some(Ok(Compiled { cost, .. })) => self.cost(&of_message, "messageExpression", *cost),
            Some(Err(why)) => self.errors.invalid_text(of_message, &rule.shown(), why),
            None => {}
        }
        match (&place.uncorrelatable, rule.uses_old(), rule.optional_old) {
            (Some(list), true, _) => {
                let what = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                self.errors.invalid(at, &json!(rule.text), what);
            }
            (_, false, Some(is_optional)) => {
                let what = "may not be set if oldSelf is not used in rule";
                let at = format!("{path}.optionalOldSelf");
                self.errors.invalid(at, &is_optional.into(), what);
            }
            _ => {}
        }
    }

    /// Takes account of what an expression may cost.
    fn cost(&mut self, path: &str, name: &str, cost: u64) {
        if cost > MOST_OF_ONE {
            let what = exceeds(&format!("estimated {name} cost"), cost, MOST_OF_ONE);
            self.errors.forbidden(path, what);
        }
        self.total = self.total.saturating_add(cost);
        if cost >= MOST_OF_ALL / 100 {
            self.dearest.push((path.to_owned(), cost));
            self.dearest
                .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(MOST_TOLD);
        }
    }

    /// Tells of what all of them cost together.
    fn all(&mut self, path: &str) {
        if self.total <= MOST_OF_ALL {
            return;
        }
        for (path, _) in std::mem::take(&mut self.dearest) {
            let what = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.forbidden(path, what);
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.errors
            .forbidden(path, exceeds(name, self.total, MOST_OF_ALL));
    }

    /// Not along additionalProperties, as upstream.
    fn defaults(&mut self, node: &Node, path: &str) {
        if let Some(default) = &node.default {
            let path = format!("{path}.default");
            self.errors.extend(evaluate::default(node, default, &path));
        }
        if let Some(items) = &node.items {
            self.defaults(items, &format!("{path}.items"));
        }
        for (name, property) in &node.properties {
            self.defaults(property, &format!("{path}.properties[{name}]"));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is told to a digit")]
fn exceeds(name: &str, cost: u64, most: u64) -> String {
    let factor = cost as f64 / most as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
