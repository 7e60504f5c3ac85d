//! Looking into values.

use serde_json::Value as Json;

use super::{
    super::node::{Attribute, Base, Node, Qualifier, QualifierKind, uncancelled},
    Evaluation,
};
use crate::{
    schema::{DeclKind, DeclType, find_field},
    value::{EvalError, Evaluated, Map, Value},
};

impl<'v> Evaluation<'v, '_, '_> {
    /// A name, and what is looked for in its value. `observed` is false where upstream does not
    /// charge for the name itself: in branches of conditionals, and for indexes.
    pub(super) fn attribute(&mut self, attribute: &'v Attribute, observed: bool) -> Evaluated<'v> {
        if let (Base::Local(place), []) = (&attribute.base, &*attribute.qualifiers) {
            self.meter.charge(u64::from(observed))?;
            return self.locals[*place].clone();
        }
        if let Some((found, of)) = self.fields(attribute) {
            let steps = attribute.qualifiers.len() as u64;
            self.meter.charge(u64::from(observed) + steps)?;
            return of.value(found);
        }
        let base = self.base(&attribute.base);
        let base = uncancelled(base)?;
        if observed && !attribute.test_only && !matches!(attribute.base, Base::Conditional(_)) {
            self.meter.charge(1)?;
        }
        let mut value = base?;
        if attribute.qualifiers.is_empty() {
            return Ok(value);
        }
        let mut optional = false;
        let last = attribute.qualifiers.len() - 1;
        for (at, qualifier) in attribute.qualifiers.iter().enumerate() {
            if let Value::Optional(inner) = &value {
                match inner {
                    Some(inner) => {
                        optional = true;
                        value = (**inner).clone();
                    }
                    None if attribute.test_only => return Ok(Value::Bool(false)),
                    None => return Ok(value),
                }
            }
            optional |= qualifier.optional;
            let tested = attribute.test_only && at == last;
            match self.qualify(&value, qualifier)? {
                Ok(next) => {
                    self.meter.charge(1)?;
                    value = next;
                }
                Err(Missing::Absent(_)) if tested => {
                    self.meter.charge(1)?;
                    return Ok(Value::Bool(false));
                }
                Err(Missing::Error(error)) => {
                    self.meter.charge(1)?;
                    return Err(error);
                }
                Err(Missing::Absent(_)) if optional && attribute.test_only => {
                    return Ok(Value::Bool(false));
                }
                Err(Missing::Absent(_)) if optional => return Ok(Value::Optional(None)),
                Err(Missing::Absent(error)) => {
                    self.meter.charge(1)?;
                    return Err(error);
                }
            }
            if tested {
                return Ok(Value::Bool(true));
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// A field of an object, or of an object in it, as it is there: most of what rules look at.
    /// `None` of all else, also where something is missing or not as it should be.
    fn fields(&self, attribute: &Attribute) -> Option<(&'v Json, &'v DeclType)> {
        let base = match attribute.base {
            Base::Variable(at) => self.given.values.get(at)?,
            Base::Local(place) => self.locals[place].as_ref().ok()?,
            Base::Value(_) | Base::Conditional(_) | Base::Composed(_) => return None,
        };
        let (Value::Map(Map::Json(map, of)), false) = (base, attribute.test_only) else {
            return None;
        };
        let (mut map, mut of, mut found): (_, _, Option<&'v Json>) = (*map, *of, None);
        for qualifier in &attribute.qualifiers {
            if let Some(Json::Object(within)) = found {
                map = within;
            } else if found.is_some() {
                return None;
            }
            let QualifierKind::Field(name) = &qualifier.kind else {
                return None;
            };
            let field = match &of.kind {
                DeclKind::Object { fields, .. } => find_field(fields, name)?,
                _ => return None,
            };
            let value = map.get(&*field.json_name).filter(|value| !value.is_null());
            (found, of) = (Some(value?), &*field.of);
            if qualifier.optional {
                return None;
            }
        }
        Some((found?, of))
    }

    fn base(&mut self, base: &'v Base) -> Evaluated<'v> {
        match base {
            Base::Variable(at) => match self.given.values.get(*at) {
                Some(value) => Ok(value.clone()),
                None => Err(EvalError::new(format!(
                    "no such attribute(s): {}",
                    self.given.names[*at]
                ))),
            },
            // The look into the variable that has it.
            Base::Composed(place) => {
                self.meter.charge(1)?;
                self.given.composed.value(*place)
            }
            Base::Local(place) => self.locals[*place].clone(),
            Base::Value(node) => self.node(node),
            Base::Conditional([condition, yes, no]) => match self.node(condition)? {
                Value::Bool(true) => self.unobserved(yes),
                Value::Bool(false) => self.unobserved(no),
                _ => Err(EvalError::no_such_overload()),
            },
        }
    }

    fn unobserved(&mut self, node: &'v Node) -> Evaluated<'v> {
        match node {
            Node::Attribute(attribute) if !attribute.test_only => self.attribute(attribute, false),
            node => self.node(node),
        }
    }

    /// One step into a value. The outer error ends the evaluation.
    fn qualify(
        &mut self,
        value: &Value<'v>,
        qualifier: &'v Qualifier,
    ) -> Result<Result<Value<'v>, Missing>, EvalError> {
        let found = match &qualifier.kind {
            QualifierKind::Field(name) => match value {
                Value::Map(map) => map.field(name).ok_or_else(|| absent(name)),
                Value::List(_) => Err(Missing::Error(EvalError::new(
                    "unsupported index type 'string' in list",
                ))),
                _ => Err(Missing::Error(EvalError::no_such_key(name))),
            },
            QualifierKind::Key(key) => element(value, key),
            QualifierKind::Expr(node) => {
                let key = self.unobserved(node);
                match uncancelled(key)? {
                    Ok(key) => element(value, &key),
                    Err(error) => Err(Missing::Error(error)),
                }
            }
        };
        Ok(match found {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Missing::Error(error)),
            Err(missing) => Err(missing),
        })
    }
}

/// Why there is nothing.
enum Missing {
    /// It could be there.
    Absent(EvalError),
    /// It could not.
    Error(EvalError),
}

fn absent(key: &str) -> Missing {
    Missing::Absent(EvalError::no_such_key(key))
}

/// The element of a list or the entry of a map.
fn element<'v>(value: &Value<'v>, key: &Value<'_>) -> Result<Evaluated<'v>, Missing> {
    match value {
        Value::Map(map) => {
            if let Some(found) = map.get(key) {
                return Ok(found);
            }
            Err(absent(&crate::functions::texts::display(key)))
        }
        Value::List(list) => {
            let at = match key {
                Value::Int(at) => *at,
                Value::Uint(at) => i64::try_from(*at).unwrap_or(i64::MAX),
                #[expect(clippy::cast_possible_truncation, reason = "whole and bounded")]
                Value::Double(at) if at.fract() == 0.0 && at.abs() < 9e15 => *at as i64,
                other => {
                    let message = format!(
                        "unsupported index type '{}' in list",
                        other.type_of().runtime_name()
                    );
                    return Err(Missing::Error(EvalError::new(message)));
                }
            };
            let found = usize::try_from(at).ok().and_then(|at| list.get(at));
            found.ok_or_else(|| {
                Missing::Absent(EvalError::new(format!("index out of bounds: {at}")))
            })
        }
        _ => Err(Missing::Error(EvalError::no_such_key(
            crate::functions::texts::display(key),
        ))),
    }
}
