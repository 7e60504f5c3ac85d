//! Lists, maps and messages that are written in an expression.

use std::sync::Arc;

use super::{Checker, unify};
use crate::{
    ast::{Expr, ExprId},
    env::Named,
    types::Type,
};

impl Checker<'_> {
    /// The type of elements that are together in a list or a map.
    fn joined(&mut self, expr: &Expr, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else {
            return current;
        };
        if self.assignable(&previous, &current) {
            let previous = self.mapping.substitute(&previous, false);
            let current = self.mapping.substitute(&current, false);
            return unify::most_general(&previous, &current);
        }
        if self.env.mixed() {
            return Type::Dyn;
        }
        self.mismatch(expr.id, &previous, &current);
        Type::Error
    }

    /// What an element contributes: `?a` is there if `a` has a value.
    fn element(&mut self, expr: &Expr, optional: bool) -> Type {
        let of = self.check(expr);
        if !optional {
            return of;
        }
        let of = self.mapping.substitute(&of, false);
        match of.optional_value() {
            Some(value) => value.clone(),
            None if of.is_dyn() => of,
            None => {
                let expected = Type::optional(of.clone());
                self.mismatch(expr.id, &expected, &of);
                Type::Error
            }
        }
    }

    pub(super) fn list(&mut self, elements: &[(Expr, bool)]) -> Type {
        let mut joined = None;
        for (element, optional) in elements {
            let of = self.element(element, *optional);
            joined = Some(self.joined(element, joined, of));
        }
        Type::list(joined.unwrap_or_else(|| self.fresh()))
    }

    pub(super) fn map(&mut self, entries: &[(Expr, Expr, bool)]) -> Type {
        let (mut keys, mut values) = (None, None);
        for (key, value, optional) in entries {
            let of = self.check(key);
            keys = Some(self.joined(key, keys, of));
            let of = self.element(value, *optional);
            values = Some(self.joined(value, values, of));
        }
        let key = keys.unwrap_or_else(|| self.fresh());
        Type::map(key, values.unwrap_or_else(|| self.fresh()))
    }

    pub(super) fn message(
        &mut self,
        expr: &Expr,
        type_name: &str,
        fields: &[(ExprId, Arc<str>, Expr, bool)],
    ) -> Type {
        let name = type_name.strip_prefix('.').unwrap_or(type_name);
        if !self.env.constructible(name) {
            for (_, _, value, _) in fields {
                self.check(value);
            }
            match self.env.named(name) {
                Some(Named::Variable(_, of)) => {
                    let message = format!("'{of}' is not a type");
                    self.error(expr.id, message);
                }
                Some(Named::Type(_)) => {
                    self.error(expr.id, format!("'{name}' is not a message type"));
                }
                None => self.undeclared(expr.id, name),
            }
            return Type::Error;
        }
        for (id, field, value, optional) in fields {
            let of = self.element(value, *optional);
            let Some(expected) = self.env.field(name, field) else {
                self.error(*id, format!("undefined field '{field}'"));
                continue;
            };
            if !self.assignable(&of, &expected) {
                let found = self.mapping.substitute(&of, false);
                let message = format!(
                    "expected type of field '{field}' is '{expected}' but provided type is '{found}'"
                );
                self.error(*id, message);
            }
        }
        Type::object(name)
    }
}
