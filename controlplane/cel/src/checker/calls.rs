//! Calls: which function, and which of its overloads.

use std::collections::HashMap;

use super::Checker;
use crate::{
    ast::{Expr, ExprKind, Literal},
    checked::Reference,
    env::{self, Declared, Overload},
    types::{Joined, Type},
};

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Type {
        if function == "_?._" && target.is_none() {
            return self.optional_field(expr, args);
        }
        let Some(target) = target else {
            for arg in args {
                self.check(arg);
            }
            let Some(declared) = env::function(function) else {
                self.undeclared(expr.id, function);
                return Type::Error;
            };
            return self.resolved(expr, (function, declared), None, args, false);
        };
        let namespaced = target.qualified().and_then(|prefix| {
            let name = format!("{prefix}.{function}");
            env::function(&name).map(|declared| (name, declared))
        });
        if let Some((name, declared)) = namespaced {
            for arg in args {
                self.check(arg);
            }
            return self.resolved(expr, (&name, declared), None, args, true);
        }
        self.check(target);
        for arg in args {
            self.check(arg);
        }
        let Some(declared) = env::function(function) else {
            self.undeclared(expr.id, function);
            return Type::Error;
        };
        self.resolved(expr, (function, declared), Some(target), args, false)
    }

    fn optional_field(&mut self, expr: &Expr, args: &[Expr]) -> Type {
        let [operand, field] = args else {
            return Type::Error;
        };
        self.check(operand);
        self.check(field);
        let ExprKind::Literal(Literal::String(name)) = &field.kind else {
            let message = "unsupported optional field selection".to_owned();
            self.error(field.id, message);
            return Type::Error;
        };
        self.field(expr, operand, name, true)
    }

    /// The type of a call whose arguments were checked.
    fn resolved(
        &mut self,
        expr: &Expr,
        (name, declared): (&str, &'static Declared),
        target: Option<&Expr>,
        args: &[Expr],
        namespaced: bool,
    ) -> Type {
        let given: Vec<Type> = target
            .into_iter()
            .chain(args)
            .map(|arg| self.of(arg))
            .collect();
        let (overloads, result) = if matches!(name, "_&&_" | "_||_") {
            (vec![0], Some(self.logical(args, &given)))
        } else {
            self.overloads(declared, &given, target.is_some())
        };
        let Some(result) = result else {
            let given: Vec<Type> = given
                .iter()
                .map(|of| self.mapping.substitute(of, true))
                .collect();
            let applied = match (target, &*given) {
                (Some(_), [first, rest @ ..]) => format!("{first}.({})", Joined(rest)),
                _ => format!("({})", Joined(&given)),
            };
            let message = format!("found no matching overload for '{name}' applied to '{applied}'");
            self.error(expr.id, message);
            return Type::Error;
        };
        let reference = Reference::Call {
            declared,
            overloads,
            namespaced,
        };
        self.references.insert(expr.id, reference);
        result
    }

    /// Each operand by itself, so that a message points at the one that is wrong.
    fn logical(&mut self, args: &[Expr], given: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (arg, of) in args.iter().zip(given) {
            if !self.assignable(of, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, of);
                result = Type::Error;
            }
        }
        result
    }

    /// All overloads that the arguments fit, and what such a call is worth.
    fn overloads(
        &mut self,
        declared: &'static Declared,
        given: &[Type],
        member: bool,
    ) -> (Vec<usize>, Option<Type>) {
        let (mut fitting, mut result) = (Vec::new(), None::<Type>);
        for (at, overload) in declared.overloads.iter().enumerate() {
            if overload.member != member || overload.args.len() != given.len() {
                continue;
            }
            let (args, of) = self.signature(overload);
            let pairs: Vec<(&Type, &Type)> = given.iter().zip(&args).collect();
            if !self.mapping.assignable(&pairs) {
                continue;
            }
            fitting.push(at);
            let of = self.mapping.substitute(&of, false);
            result = Some(match result {
                None => of,
                Some(Type::Dyn) => Type::Dyn,
                Some(same) if same == of => same,
                Some(_) => Type::Dyn,
            });
        }
        (fitting, result)
    }

    /// Arguments and result of an overload, with parameters of this call.
    fn signature(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut renamed: HashMap<_, Type> = HashMap::new();
        let mut fresh = |of: &Type| {
            if !of.has_params() {
                return of.clone();
            }
            of.replace(&mut |part| match part {
                Type::Param(name) => {
                    let entry = renamed.entry(name.clone());
                    Some(entry.or_insert_with(|| self.fresh()).clone())
                }
                _ => None,
            })
        };
        let args = overload.args.iter().map(&mut fresh).collect();
        (args, fresh(&overload.result))
    }
}
