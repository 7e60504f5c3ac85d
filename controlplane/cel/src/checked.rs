//! Expressions whose parts fit each other, and what their names and calls mean.

use std::collections::HashMap;

use crate::{
    ast::{Ast, Expr, ExprId},
    env::{Declared, Env},
    types::Type,
};

/// What a name or a call means.
#[derive(Debug, Clone)]
pub(crate) enum Reference {
    /// A variable by its place.
    Variable(usize),
    /// A type as a value.
    Type(Type),
    /// A function, and the overloads it may be: places in what is declared.
    Call {
        declared: &'static Declared,
        overloads: Vec<usize>,
        /// Whether what looks like a target is part of the function's name.
        namespaced: bool,
    },
}

/// An expression whose parts fit each other.
#[derive(Debug, Clone)]
pub struct Checked {
    pub(crate) ast: Ast,
    pub(crate) types: Vec<Type>,
    pub(crate) references: HashMap<ExprId, Reference>,
    pub(crate) env: Env,
}

impl Checked {
    /// The type of its value.
    pub fn result(&self) -> &Type {
        self.type_of(&self.ast.root)
    }

    /// The expression.
    pub fn ast(&self) -> &Ast {
        &self.ast
    }

    /// Whether it names a variable of its environment.
    pub fn uses(&self, variable: &str) -> bool {
        let at = self.env.variables().position(|name| name == variable);
        let mut references = self.references.values();
        references
            .any(|reference| matches!(reference, Reference::Variable(place) if Some(*place) == at))
    }

    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id as usize).unwrap_or(&Type::Dyn)
    }
}
