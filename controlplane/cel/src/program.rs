//! Expressions as they are evaluated: names are places, functions are found, and what does not
//! depend on variables is computed.

mod composed;
mod eval;
mod node;
mod plan;

use std::sync::Arc;

pub use self::composed::Composed;
use self::node::Node;
use crate::{
    ast::Ast,
    checked::Checked,
    env::Env,
    meter::Meter,
    source::Issues,
    value::{EvalError, Evaluated, Value},
};

/// An expression that can be evaluated, over and over and at the same time.
#[derive(Debug)]
pub struct Program {
    root: Node,
    locals: usize,
    patterns: usize,
    variables: Vec<Arc<str>>,
    composed: Vec<usize>,
}

/// Of an environment that has none.
struct Uncomposed;

impl<'v> Composed<'v> for Uncomposed {
    fn value(&self, _: usize) -> Evaluated<'v> {
        Err(EvalError::new("no such attribute(s): variables"))
    }
}

impl Program {
    /// Of an expression that was checked.
    ///
    /// # Errors
    /// [`Issues`] when a constant part of it cannot be computed.
    pub fn new(checked: &Checked) -> Result<Self, Issues> {
        Self::planned(&checked.ast, &checked.env, Some(checked))
    }

    /// Of an expression whose types are only found out as it is evaluated.
    ///
    /// # Errors
    /// [`Issues`] when it names what is not there, or a constant part cannot be computed.
    pub fn unchecked(ast: &Ast, env: &Env) -> Result<Self, Issues> {
        Self::planned(ast, env, None)
    }

    fn planned(ast: &Ast, env: &Env, checked: Option<&Checked>) -> Result<Self, Issues> {
        let plan = plan::plan(ast, env, checked)?;
        Ok(Self {
            root: plan.root,
            locals: plan.locals,
            patterns: plan.patterns,
            variables: env.variables().map(Arc::from).collect(),
            composed: plan.composed,
        })
    }

    /// Bytes that its regular expressions take at most: by far the largest part of a program that
    /// has some.
    pub fn patterns_size(&self) -> usize {
        self.patterns
    }

    /// Evaluates it with values for the variables of its environment, in their order; those beyond
    /// the end have none.
    ///
    /// # Errors
    /// [`EvalError`](crate::value::EvalError) when it has no value, or the meter ends it.
    pub fn evaluate<'v>(
        &'v self,
        meter: &mut Meter<'_>,
        variables: &'v [Value<'v>],
    ) -> Evaluated<'v> {
        self.evaluate_composed(meter, variables, &Uncomposed)
    }

    /// The same with the fields of the composed variable.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn evaluate_composed<'v>(
        &'v self,
        meter: &mut Meter<'_>,
        variables: &'v [Value<'v>],
        composed: &dyn Composed<'v>,
    ) -> Evaluated<'v> {
        let given = eval::Given {
            names: &self.variables,
            values: variables,
            composed,
        };
        eval::Evaluation::new(meter, given, self.locals).node(&self.root)
    }

    /// The fields of the composed variable that it asks for.
    pub fn composed(&self) -> &[usize] {
        &self.composed
    }
}
