//! Objects against rules.

use std::collections::HashMap;

use coracle_api::status::FieldErrors;
use coracle_cel::{
    Meter,
    schema::DeclType,
    value::{EvalError, Evaluated, Value as CelValue},
};
use serde_json::{Map, Value, json};

use super::{
    place::{Pair, Path, Was},
    rule::{Compiled, Rule},
    tree::{Elements, Node},
};
use crate::beside::beside;

/// What rules may spend.
#[derive(Clone, Copy)]
struct Budget {
    /// On one expression.
    one: u64,
    /// On all rules of an object together.
    all: u64,
    /// On what costs do not see.
    work: u64,
}

/// Upstream's, and a bound on the rest: a second, where much is compiled.
const MOST: Budget = Budget {
    one: 1_000_000,
    all: 10_000_000,
    work: 30_000_000,
};
/// A millisecond of a thread that others wait for.
const AT_HAND: Budget = Budget {
    one: 30_000,
    all: 30_000,
    work: 30_000,
};
/// The longest message that an expression makes, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What an object breaks.
pub(super) fn object(rules: &Node, object: &Value, old: Option<&Value>) -> FieldErrors {
    let pair = old.map(|old| Pair::new(object, old));
    let at = At {
        path: &Path::Root(""),
        value: object,
        old,
        was: Was::of(pair.as_ref()),
    };
    let (found, is_all) = Evaluation::run(rules, at, AT_HAND);
    if is_all {
        return found;
    }
    beside(|| Evaluation::run(rules, at, MOST).0)
}

/// What a default breaks: once with itself as its past, for rules about changes, and once without.
pub(super) fn default(rules: &Node, default: &Value, path: &str) -> FieldErrors {
    let of = |old| {
        let at = At {
            path: &Path::Root(path),
            value: default,
            old,
            was: Was::default(),
        };
        Evaluation::run(rules, at, MOST).0
    };
    let errors = of(Some(default));
    if errors.is_empty() { of(None) } else { errors }
}

/// A value in an object.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a Path<'a>,
    value: &'a Value,
    /// `oldSelf`
    old: Option<&'a Value>,
    was: Was<'a>,
}

struct Evaluation {
    /// What may still be spent.
    left: Budget,
    /// No more is evaluated.
    is_over: bool,
    /// Because too much was spent.
    is_spent: bool,
    errors: FieldErrors,
}

impl Evaluation {
    /// What was found, and whether the budget was enough for all of it.
    fn run(rules: &Node, at: At<'_>, budget: Budget) -> (FieldErrors, bool) {
        let mut evaluation = Self {
            left: budget,
            is_over: false,
            is_spent: false,
            errors: FieldErrors::new(),
        };
        evaluation.value(rules, at);
        (evaluation.errors, !evaluation.is_spent)
    }

    fn value(&mut self, node: &Node, at: At<'_>) {
        if self.is_over || at.value.is_null() {
            return;
        }
        if let Some(of) = node.of.as_ref().filter(|_| !node.rules.is_empty()) {
            self.rules(node, of, at);
        }
        match at.value {
            Value::Array(list) => self.list(node, list, at),
            Value::Object(map) => self.map(node, map, at),
            _ => {}
        }
    }

    fn list(&mut self, node: &Node, list: &[Value], at: At<'_>) {
        let Some(items) = &node.items else { return };
        let old = at.was.old().or(at.old).and_then(Value::as_array);
        let old = old.map_or(&[][..], Vec::as_slice);
        let by_key = by_key(&node.elements, old);
        for (index, value) in list.iter().enumerate() {
            let (known, same) = match &node.elements {
                Elements::Keys(keys) => {
                    let same = by_key.get(&key_of(keys, value)).copied();
                    (same.filter(|_| at.old.is_some()), same)
                }
                Elements::Apart => (None, None),
            };
            let path = Path::Index(at.path, index);
            self.below(items, at, (&path, value), (known, same));
        }
    }

    fn map(&mut self, node: &Node, map: &Map<String, Value>, at: At<'_>) {
        if let Some(additional) = &node.additional {
            for (name, value) in map {
                let path = Path::Key(at.path, name);
                self.member(additional, at, name, (&path, value));
            }
        }
        for (name, property) in &node.properties {
            if let Some(value) = map.get(name) {
                let path = Path::Child(at.path, name);
                self.member(property, at, name, (&path, value));
            }
        }
    }

    fn member(&mut self, node: &Node, at: At<'_>, name: &str, to: (&Path<'_>, &Value)) {
        let known = at.old.and_then(|old| old.get(name));
        // Both are of the version that is asked for, whatever was stored.
        let is_type = at.was.is_root() && matches!(name, "apiVersion" | "kind");
        let old = at.was.old().filter(|_| !is_type);
        self.below(node, at, to, (known, old.and_then(|old| old.get(name))));
    }

    /// Goes on with a value in a value; `known` is its `oldSelf`, `same` what it was.
    fn below(
        &mut self,
        node: &Node,
        at: At<'_>,
        (path, value): (&Path<'_>, &Value),
        (known, same): (Option<&Value>, Option<&Value>),
    ) {
        let pair = same
            .filter(|_| at.was.old().is_some())
            .map(|same| Pair::new(value, same));
        let was = at.was.within(pair.as_ref());
        let old = known;
        self.value(
            node,
            At {
                path,
                value,
                old,
                was,
            },
        );
    }

    fn rules(&mut self, node: &Node, of: &DeclType, at: At<'_>) {
        let old = at.old.filter(|old| !old.is_null());
        for rule in &node.rules {
            if self.is_over {
                return;
            }
            if self.left.all == 0 {
                return self.end(node, at, NO_BUDGET);
            }
            let compiled = match &rule.program {
                Ok(compiled) => compiled,
                Err(why) => {
                    self.invalid(node, at, format!("rule compile error: {why}"));
                    continue;
                }
            };
            let is_optional = rule.optional_old == Some(true);
            if compiled.uses_old && old.is_none() && !is_optional {
                continue;
            }
            match variables(of, at.value, old, is_optional) {
                Ok(variables) => self.rule(node, rule, compiled, &variables, at),
                Err(why) => {
                    self.invalid(node, at, format!("{why} evaluating rule: {}", rule.name()));
                }
            }
        }
    }

    fn rule<'v>(
        &mut self,
        node: &Node,
        rule: &Rule,
        compiled: &'v Compiled,
        variables: &'v [CelValue<'v>],
        at: At<'_>,
    ) {
        let Some(found) = self.evaluate(compiled, variables) else {
            return self.end(node, at, NO_BUDGET);
        };
        let name = rule.name();
        match found {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => self.broken(node, rule, variables, at),
            Err(why) if why.is_cancelled() => {
                let what = format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                self.end(node, at, what);
            }
            Err(why) if why.to_string().starts_with("no such overload") => {
                let what = format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                );
                self.invalid(node, at, what);
            }
            Err(why) => self.invalid(node, at, format!("{why} evaluating rule: {name}")),
        }
    }

    /// `None` if it costs more than there is left.
    fn evaluate<'v>(
        &mut self,
        compiled: &'v Compiled,
        variables: &'v [CelValue<'v>],
    ) -> Option<Evaluated<'v>> {
        let mut meter = Meter::new(self.left.one).work_at_most(self.left.work);
        let found = compiled.program.evaluate(&mut meter, variables);
        self.left.work = self.left.work.saturating_sub(meter.worked());
        let left = self.left.all.checked_sub(meter.cost());
        self.is_spent |= left.is_none() || found.as_ref().is_err_and(EvalError::is_cancelled);
        self.left.all = left?;
        Some(found)
    }

    /// Tells of a rule that does not hold.
    fn broken<'v>(
        &mut self,
        node: &Node,
        rule: &'v Rule,
        variables: &'v [CelValue<'v>],
        at: At<'_>,
    ) {
        let path = at.path.with(rule.field.as_deref().unwrap_or_default());
        let detail = match self.message(rule, variables) {
            Ok(made) => made.unwrap_or_else(|| match rule.message.trim() {
                "" => format!("failed rule: {}", rule.name()),
                message => message.to_owned(),
            }),
            Err(why) => {
                self.is_over = true;
                return self.errors.invalid(path, &json!(node.kind), why);
            }
        };
        let mut errors = FieldErrors::new();
        // Objects and lists are too much to show.
        let is_shown = !matches!(node.kind.as_str(), "object" | "array");
        match rule.reason.as_deref() {
            Some("FieldValueForbidden") => errors.forbidden(path, detail),
            Some("FieldValueRequired") => errors.required(path, detail),
            Some("FieldValueDuplicate") if is_shown => errors.duplicate(path, at.value),
            Some("FieldValueDuplicate") => errors.duplicate_unshown(path),
            _ if is_shown => errors.invalid(path, at.value, detail),
            _ => errors.invalid_unshown(path, detail),
        }
        if !rule.uses_old() && at.was.is_unchanged() {
            self.errors.tolerate_all(errors);
        } else {
            self.errors.extend(errors);
        }
    }

    /// The message that a rule's expression makes, if it has one and it makes one that can be
    /// told.
    ///
    /// # Errors
    /// Why no more is evaluated.
    fn message<'v>(
        &mut self,
        rule: &'v Rule,
        variables: &'v [CelValue<'v>],
    ) -> Result<Option<String>, String> {
        let Some(Ok(compiled)) = &rule.message_program else {
            return Ok(None);
        };
        let Some(found) = self.evaluate(compiled, variables) else {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        };
        let text = match found {
            Ok(CelValue::String(text)) => text.trim().to_owned(),
            Err(why) if why.is_cancelled() => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                    rule.message_text
                ));
            }
            Ok(_) | Err(_) => return Ok(None),
        };
        let is_told = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        Ok(is_told.then_some(text))
    }

    fn invalid(&mut self, node: &Node, at: At<'_>, what: impl AsRef<str>) {
        let path = at.path.with("");
        self.errors.invalid(path, &json!(node.kind), what);
    }

    fn end(&mut self, node: &Node, at: At<'_>, what: impl AsRef<str>) {
        self.invalid(node, at, what);
        self.is_over = true;
        self.is_spent = true;
    }
}

/// `self` and, if there is one, `oldSelf`.
fn variables<'v>(
    of: &'v DeclType,
    value: &'v Value,
    old: Option<&'v Value>,
    is_optional: bool,
) -> Result<Vec<CelValue<'v>>, EvalError> {
    let old = old.map(|old| of.value(old)).transpose()?;
    let old = if is_optional {
        Some(old.map_or(CelValue::Optional(None), CelValue::some))
    } else {
        old
    };
    Ok(std::iter::once(of.value(value)?).chain(old).collect())
}

fn by_key<'v>(elements: &Elements, list: &'v [Value]) -> HashMap<String, &'v Value> {
    let Elements::Keys(keys) = elements else {
        return HashMap::new();
    };
    list.iter().map(|item| (key_of(keys, item), item)).collect()
}

fn key_of(keys: &[String], item: &Value) -> String {
    let values: Vec<&Value> = keys.iter().map(|key| &item[key]).collect();
    json!(values).to_string()
}
