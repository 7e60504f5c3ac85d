//! Evaluation, with upstream's costs.
//!
//! A name costs one unit, each look into a value one more; a name that is a branch of a conditional
//! or an index costs nothing by itself. Constants are free.
//!
//! Source: `interpreter/interpretable.go`, `interpreter/attributes.go` and
//! `interpreter/runtimecost.go` of cel-go.

mod attributes;
pub(super) mod calls;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    composed::Composed,
    node::{Accumulate, Fold, Members, Node, Quantifier, uncancelled},
};
use crate::{
    functions::{equal::equal, regexes},
    meter::Meter,
    value::{EvalError, Evaluated, List, Map, Value},
};

const LIST: u64 = 10;
const MAP: u64 = 30;
const OBJECT: u64 = 40;

/// What names stand for.
pub(super) struct Given<'v, 'c> {
    pub(super) names: &'v [Arc<str>],
    pub(super) values: &'v [Value<'v>],
    pub(super) composed: &'c dyn Composed<'v>,
}

/// One evaluation of a program.
pub(super) struct Evaluation<'v, 'm, 'i> {
    meter: &'m mut Meter<'i>,
    given: Given<'v, 'm>,
    locals: Vec<Evaluated<'v>>,
}

impl<'v, 'm, 'i> Evaluation<'v, 'm, 'i> {
    /// With so many variables of loops.
    pub(super) fn new(meter: &'m mut Meter<'i>, given: Given<'v, 'm>, locals: usize) -> Self {
        Self {
            meter,
            given,
            locals: vec![Ok(Value::Null); locals],
        }
    }

    pub(super) fn node(&mut self, node: &'v Node) -> Evaluated<'v> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute, true),
            Node::And(operands) => self.logical(operands, false),
            Node::Or(operands) => self.logical(operands, true),
            Node::NotStrictlyFalse(operand) => {
                let holds = match self.node(operand) {
                    Err(error) if error.is_cancelled() => return Err(error),
                    Ok(Value::Bool(bool)) => bool,
                    _ => true,
                };
                self.meter.charge(1)?;
                Ok(Value::Bool(holds))
            }
            Node::Call(call) => self.call(call),
            Node::Regex(call, regex) => {
                let args = self.args(call)?;
                let value = regexes::call(call.name, regex, &args);
                self.charge(call, &args, value)
            }
            Node::MemberOf(value, members) => self.member_of(value, members),
            Node::OptionalOr(operands, unwrapped) => self.optional_or(operands, *unwrapped),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Object(name, fields) => {
                let mut values = BTreeMap::new();
                for (field, value, optional) in fields {
                    let value = self.node(value)?;
                    if let Some(value) = present(value, *optional)? {
                        values.insert(key_of(field), value);
                    }
                }
                self.meter.charge(OBJECT)?;
                Ok(Value::Map(Map::Object(name.clone(), Arc::new(values))))
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Quantifier(quantifier) => self.quantifier(quantifier),
            Node::Accumulate(accumulate) => self.accumulate(accumulate),
        }
    }

    /// `&&` and `||`: an operand that decides does so whatever the other one is.
    fn logical(&mut self, operands: &'v [Node; 2], decides: bool) -> Evaluated<'v> {
        let failed = match self.node(&operands[0]) {
            Ok(Value::Bool(bool)) if bool == decides => return Ok(Value::Bool(bool)),
            Ok(Value::Bool(_)) => None,
            Ok(_) => Some(EvalError::no_such_overload()),
            Err(error) if error.is_cancelled() => return Err(error),
            Err(error) => Some(error),
        };
        match (self.node(&operands[1]), failed) {
            (Err(error), _) if error.is_cancelled() => Err(error),
            (Ok(Value::Bool(bool)), _) if bool == decides => Ok(Value::Bool(bool)),
            (_, Some(error)) => Err(error),
            (value @ (Ok(Value::Bool(_)) | Err(_)), None) => value,
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn member_of(&mut self, value: &'v Node, members: &'v Members) -> Evaluated<'v> {
        let value = self.node(value)?;
        let found = match members {
            Members::Keys(keys) => match (&value, value.key()) {
                (_, Some(key)) => keys.contains(&key),
                (Value::Double(_), None) => {
                    let mut found = false;
                    for key in keys {
                        found |= equal(self.meter, &value, &Value::from(key.clone()))?;
                    }
                    found
                }
                _ => false,
            },
            Members::Values(values) => {
                let mut found = false;
                for member in values {
                    found |= equal(self.meter, &value, member)?;
                }
                found
            }
        };
        Ok(Value::Bool(found))
    }

    fn optional_or(&mut self, operands: &'v [Node; 2], unwrapped: bool) -> Evaluated<'v> {
        match self.node(&operands[0])? {
            Value::Optional(Some(value)) if unwrapped => Ok((*value).clone()),
            Value::Optional(None) => self.node(&operands[1]),
            value @ Value::Optional(_) => Ok(value),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn list(&mut self, elements: &'v [(Node, bool)]) -> Evaluated<'v> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.node(element)?;
            values.extend(present(value, *optional)?);
        }
        self.meter.charge(LIST)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'v [(Node, Node, bool)]) -> Evaluated<'v> {
        let mut values = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.node(key)?;
            let value = self.node(value)?;
            let Some(value) = present(value, *optional)? else {
                continue;
            };
            let of = key.type_of();
            let Some(key) = key.key() else {
                return Err(EvalError::new(format!(
                    "unsupported key type: {}",
                    of.runtime_name()
                )));
            };
            if values.insert(key, value).is_some() {
                return Err(EvalError::new("Failed with repeated key"));
            }
        }
        self.meter.charge(MAP)?;
        Ok(Value::Map(Map::Owned(Arc::new(values))))
    }

    fn fold(&mut self, fold: &'v Fold) -> Evaluated<'v> {
        let range = self.node(&fold.range)?;
        let init = self.node(&fold.init);
        let init = uncancelled(init)?;
        self.locals[fold.accumulator] = init;
        self.each(&range, (fold.first, fold.second), |own| own.step(fold))?;
        self.node(&fold.result)
    }

    /// Costs what the loop costs that upstream makes of it: before each turn it is asked whether to
    /// go on, and what is carried is looked at in the turn and at the end.
    fn quantifier(&mut self, quantifier: &'v Quantifier) -> Evaluated<'v> {
        let range = self.node(&quantifier.range)?;
        let decides = quantifier.decides;
        // What is carried, if it is `exists` its negation, and what makes an error of it true.
        let asking = if decides { 3 } else { 2 };
        let (mut is_decided, mut failed) = (false, None);
        self.each(&range, (quantifier.first, quantifier.second), |own| {
            own.meter.step()?;
            own.meter.charge(asking)?;
            if is_decided {
                return Ok(false);
            }
            own.meter.charge(1)?;
            let error = match own.node(&quantifier.predicate) {
                Ok(Value::Bool(bool)) => {
                    is_decided = bool == decides;
                    return Ok(true);
                }
                Ok(_) => EvalError::no_such_overload(),
                Err(error) if error.is_cancelled() => return Err(error),
                Err(error) => error,
            };
            failed.get_or_insert(error);
            Ok(true)
        })?;
        self.meter.charge(1)?;
        match failed {
            Some(error) if !is_decided => Err(error),
            _ => Ok(Value::Bool(is_decided == decides)),
        }
    }

    /// Goes through a list or a map until `turn` says that it is the end.
    fn each(
        &mut self,
        range: &Value<'v>,
        (first, second): (usize, Option<usize>),
        mut turn: impl FnMut(&mut Self) -> Result<bool, EvalError>,
    ) -> Result<(), EvalError> {
        match range {
            Value::List(list) => {
                for (element, at) in list.iter().zip(0..) {
                    match second {
                        Some(second) => {
                            self.locals[first] = Ok(Value::Int(at));
                            self.locals[second] = element;
                        }
                        None => self.locals[first] = element,
                    }
                    if !turn(self)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in map.keys() {
                    if let Some(second) = second {
                        let value = map.get(&key);
                        self.locals[second] = value.unwrap_or(Ok(Value::Null));
                    }
                    self.locals[first] = Ok(key);
                    if !turn(self)? {
                        break;
                    }
                }
            }
            _ => return Err(EvalError::no_such_overload()),
        }
        Ok(())
    }

    /// One turn of a loop; false at its end.
    fn step(&mut self, fold: &'v Fold) -> Result<bool, EvalError> {
        self.meter.step()?;
        match self.node(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_cancelled() => return Err(error),
            _ => {}
        }
        self.locals[fold.accumulator] = match self.node(&fold.step) {
            Err(error) if error.is_cancelled() => return Err(error),
            next => next,
        };
        Ok(true)
    }

    /// `accumulator + [element]`, or an entry inserted: what is carried is taken, not copied.
    fn accumulate(&mut self, accumulate: &'v Accumulate) -> Evaluated<'v> {
        let mut parts = Vec::with_capacity(accumulate.parts.len() + 1);
        self.meter.charge(1)?;
        for part in &accumulate.parts {
            parts.push(self.node(part)?);
        }
        let carried = std::mem::replace(&mut self.locals[accumulate.accumulator], Ok(Value::Null))?;
        if let Some(insert) = accumulate.insert {
            parts.insert(0, carried);
            let value = (insert.call)(self.meter, &mut parts)?;
            self.meter.charge(1)?;
            return Ok(value);
        }
        self.meter.charge(LIST + 1)?;
        match carried {
            Value::List(List::Owned(mut list)) => {
                Arc::make_mut(&mut list).extend(parts);
                Ok(Value::List(List::Owned(list)))
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }
}

fn key_of<'v>(field: &'v Arc<str>) -> crate::value::Key<'v> {
    crate::value::Key::String(crate::value::Text::Owned(field.clone()))
}

/// `?a` is there if `a` has a value.
fn present<'v>(value: Value<'v>, optional: bool) -> Result<Option<Value<'v>>, EvalError> {
    match value {
        Value::Optional(value) if optional => Ok(value.map(|value| (*value).clone())),
        _ if optional => Err(EvalError::no_such_overload()),
        value => Ok(Some(value)),
    }
}
