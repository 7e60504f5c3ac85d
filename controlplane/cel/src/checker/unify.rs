//! What stands for what: type parameters and the types found for them.
//!
//! Source: `checker/types.go` of cel-go.

use std::{collections::HashMap, sync::Arc};

use crate::types::Type;

/// Types by the names of the parameters that they take the place of.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    found: HashMap<Arc<str>, Type>,
    /// What was there before each change since what is tried now began.
    changed: Vec<(Arc<str>, Option<Type>)>,
}

impl Mapping {
    /// With what is known of its parameters; what is not stays, or becomes dynamic.
    pub(super) fn substitute(&self, of: &Type, unknown_is_dyn: bool) -> Type {
        if !of.has_params() {
            return of.clone();
        }
        of.replace(&mut |part| match part {
            Type::Param(name) => match self.found.get(name) {
                Some(found) => Some(self.substitute(found, unknown_is_dyn)),
                None if unknown_is_dyn => Some(Type::Dyn),
                None => None,
            },
            _ => None,
        })
    }

    /// Whether values of `from` fit where all of `to` are expected; if so, what was found stays.
    pub(super) fn assignable(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        self.changed.clear();
        let fit = pairs.iter().all(|(from, to)| self.fits(from, to));
        if !fit {
            while let Some((name, before)) = self.changed.pop() {
                match before {
                    Some(before) => self.found.insert(name, before),
                    None => self.found.remove(&name),
                };
            }
        }
        fit
    }

    fn set(&mut self, name: &Arc<str>, of: Type) {
        let before = self.found.insert(name.clone(), of);
        self.changed.push((name.clone(), before));
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(name) = to {
            return self.substitutes(from, name, to);
        }
        if let Type::Param(name) = from {
            return self.substitutes(to, name, from);
        }
        match (from, to) {
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::List(from), Type::List(to)) => self.fits(from, to),
            (Type::Map(from), Type::Map(to)) => {
                self.fits(&from.0, &to.0) && self.fits(&from.1, &to.1)
            }
            (Type::Opaque(a, from), Type::Opaque(b, to)) => {
                a == b
                    && from.len() == to.len()
                    && from.iter().zip(&**to).all(|(from, to)| self.fits(from, to))
            }
            (Type::Type(_), Type::Type(_)) => true,
            (from, to) => from == to,
        }
    }

    fn substitutes(&mut self, of: &Type, name: &Arc<str>, param: &Type) -> bool {
        if self.end(of) == *param {
            return true;
        }
        let Some(found) = self.found.get(name).cloned() else {
            if self.refers(name, of) {
                return false;
            }
            self.set(name, of.clone());
            return true;
        };
        if found == *of {
            return true;
        }
        if !self.fits(of, &found) {
            return false;
        }
        let general = most_general(of, &found);
        if !self.refers(name, &general) {
            self.set(name, general);
        }
        true
    }

    /// What a parameter that stands for a parameter, and so on, stands for in the end.
    fn end(&self, of: &Type) -> Type {
        let mut end = of;
        while let Type::Param(name) = end
            && let Some(next) = self.found.get(name)
        {
            end = next;
        }
        end.clone()
    }

    /// Whether a type has the parameter in it, be it by way of others.
    fn refers(&self, name: &Arc<str>, of: &Type) -> bool {
        match of {
            Type::Param(other) => {
                other == name
                    || self
                        .found
                        .get(other)
                        .is_some_and(|found| self.refers(name, found))
            }
            Type::List(element) => self.refers(name, element),
            Type::Map(entry) => self.refers(name, &entry.0) || self.refers(name, &entry.1),
            Type::Opaque(_, params) => params.iter().any(|param| self.refers(name, param)),
            Type::Type(Some(of)) => self.refers(name, of),
            _ => false,
        }
    }
}

fn nullable(of: &Type) -> bool {
    matches!(
        of,
        Type::Null | Type::Object(_) | Type::Opaque(..) | Type::Timestamp | Type::Duration
    )
}

/// The one of two types that fit each other that says less.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if less_specific(a, b) { a } else { b }.clone()
}

fn less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Error | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Error | Type::Param(_)) => false,
        (Type::Null, other) => *other == Type::Null,
        (other, Type::Null) => nullable(other),
        (Type::List(a), Type::List(b)) => less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => less_specific(&a.0, &b.0) && less_specific(&a.1, &b.1),
        (Type::Opaque(a, of_a), Type::Opaque(b, of_b)) => {
            a == b && of_a.iter().zip(&**of_b).all(|(a, b)| less_specific(a, b))
        }
        (a, b) => a == b,
    }
}
