//! Whether the parts of an expression fit each other, and which overloads its calls mean.
//!
//! Source: `checker/checker.go` of cel-go.

mod aggregates;
mod calls;
mod literals;
mod unify;

use std::{collections::HashMap, sync::Arc};

use crate::{
    ast::{Ast, Comprehension, Expr, ExprId, ExprKind, Literal},
    checked::{Checked, Reference},
    env::{Env, Named},
    source::{Found, Issue, Issues},
    types::Type,
};

/// Checks an expression.
///
/// # Errors
/// [`Issues`] with all that does not fit.
pub fn check(ast: Ast, env: &Env) -> Result<Checked, Issues> {
    let mut checker = Checker {
        ast: &ast,
        env,
        types: vec![Type::Error; ast.positions.len()],
        references: HashMap::new(),
        mapping: unify::Mapping::default(),
        scope: Vec::new(),
        fresh: 0,
        issues: Found::default(),
    };
    checker.check(&ast.root);
    for (id, message) in literals::refused(&ast.root, &checker.references) {
        checker.error(id, message);
    }
    let Checker {
        mut types,
        references,
        mapping,
        issues,
        ..
    } = checker;
    if !issues.is_empty() {
        return Err(Issues::new(ast.source, issues));
    }
    for of in &mut types {
        *of = mapping.substitute(of, true);
    }
    Ok(Checked {
        ast,
        types,
        references,
        env: env.clone(),
    })
}

struct Checker<'a> {
    ast: &'a Ast,
    env: &'a Env,
    types: Vec<Type>,
    references: HashMap<ExprId, Reference>,
    mapping: unify::Mapping,
    scope: Vec<(Arc<str>, Type)>,
    fresh: usize,
    issues: Found,
}

impl Checker<'_> {
    fn error(&mut self, id: ExprId, message: String) {
        let issue = Issue {
            offset: Some(self.ast.offset(id)),
            message,
        };
        // What macros copy is wrong twice, and told once.
        self.issues.push(issue);
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        let name = name.strip_prefix('.').unwrap_or(name);
        self.error(
            id,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        let expected = self.mapping.substitute(expected, false);
        let found = self.mapping.substitute(found, false);
        self.error(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn fresh(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(format!("_var{}", self.fresh - 1).into())
    }

    /// The type of an expression that was checked, as far as it is known.
    fn of(&self, expr: &Expr) -> Type {
        self.mapping
            .substitute(&self.types[expr.id as usize], false)
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.mapping.assignable(&[(from, to)])
    }

    fn check(&mut self, expr: &Expr) -> Type {
        let of = match &expr.kind {
            ExprKind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => self.select(expr, operand, field, *test_only),
            ExprKind::Call {
                function,
                target,
                args,
            } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements } => self.list(elements),
            ExprKind::Map { entries } => self.map(entries),
            ExprKind::Struct { type_name, fields } => self.message(expr, type_name, fields),
            ExprKind::Comprehension(fold) => self.fold(fold),
        };
        self.types[expr.id as usize] = of.clone();
        of
    }

    fn local(&self, name: &str) -> Option<&Type> {
        let mut scope = self.scope.iter().rev();
        scope.find(|(known, _)| **known == *name).map(|(_, of)| of)
    }

    /// A name with a meaning of its own, if it has one.
    fn resolve(&mut self, id: ExprId, name: &str) -> Option<Type> {
        let (reference, of) = match self.env.named(name)? {
            Named::Variable(at, of) => (Reference::Variable(at), of.clone()),
            Named::Type(of) => (Reference::Type(of.clone()), self.freshened(of).of()),
        };
        self.references.insert(id, reference);
        Some(of)
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Type {
        if let Some(of) = self.local(name) {
            return of.clone();
        }
        self.resolve(expr.id, name).unwrap_or_else(|| {
            self.undeclared(expr.id, name);
            Type::Error
        })
    }

    /// With parameters that nobody else knows.
    fn freshened(&mut self, of: &Type) -> Type {
        let mut renamed = HashMap::new();
        of.replace(&mut |part| match part {
            Type::Param(name) => Some(
                renamed
                    .entry(name.clone())
                    .or_insert_with(|| self.fresh())
                    .clone(),
            ),
            _ => None,
        })
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test_only: bool) -> Type {
        if let Some(name) = operand.qualified()
            && self.local(name.split('.').next().unwrap_or("")).is_none()
            && let Some(of) = self.resolve(expr.id, &format!("{name}.{field}"))
        {
            return if test_only { Type::Bool } else { of };
        }
        self.check(operand);
        let of = self.field(expr, operand, field, false);
        if test_only { Type::Bool } else { of }
    }

    /// The type of a field of an operand that was checked.
    fn field(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        let of_operand = self.of(operand);
        let (target, is_optional) = match of_operand.optional_value() {
            Some(value) => (value.clone(), true),
            None => (of_operand, false),
        };
        let of = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(name) => self.env.field(name, field).unwrap_or_else(|| {
                self.error(expr.id, format!("undefined field '{field}'"));
                Type::Error
            }),
            Type::Param(_) => {
                self.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn() => Type::Dyn,
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.error(expr.id, message);
                Type::Dyn
            }
        };
        if is_optional || optional {
            Type::optional(of)
        } else {
            of
        }
    }

    fn fold(&mut self, fold: &Comprehension) -> Type {
        self.check(&fold.iter_range);
        let of_accumulator = self.check(&fold.accu_init);
        let of_range = self.of(&fold.iter_range);
        let (first, second) = match &of_range {
            Type::List(element) if fold.iter_var2.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.assignable(&Type::Dyn, &of_range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, \
                     map, or dynamic)"
                );
                self.error(fold.iter_range.id, message);
                (Type::Error, Type::Error)
            }
        };
        self.scope
            .push((fold.accu_var.clone(), of_accumulator.clone()));
        let outer = self.scope.len();
        self.scope.push((fold.iter_var.clone(), first));
        if let Some(name) = &fold.iter_var2 {
            self.scope.push((name.clone(), second));
        }
        let condition = self.check(&fold.loop_condition);
        self.expect(&fold.loop_condition, &Type::Bool, &condition);
        let step = self.check(&fold.loop_step);
        self.expect(&fold.loop_step, &of_accumulator, &step);
        self.scope.truncate(outer);
        let of = self.check(&fold.result);
        self.scope.truncate(outer - 1);
        self.mapping.substitute(&of, false)
    }

    fn expect(&mut self, expr: &Expr, expected: &Type, found: &Type) {
        if !self.assignable(expected, found) {
            self.mismatch(expr.id, expected, found);
        }
    }
}
