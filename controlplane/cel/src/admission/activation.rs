//! The values of a policy's expressions for one request.

use std::cell::{Cell, RefCell};

use super::compiler::{Expression, Variable};
use crate::{
    meter::Meter,
    program::Composed,
    value::{EvalError, Evaluated, Value},
};

/// What evaluating one expression may cost.
const MOST_OF_ONE: u64 = 1_000_000;

/// What may be spent, in units of cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(u64);

/// More was spent than there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBudget;

/// What names stand for.
#[derive(Debug, Clone)]
pub struct Inputs<'v> {
    /// `object`
    pub object: Value<'v>,
    /// `oldObject`
    pub old_object: Value<'v>,
    /// `namespaceObject`
    pub namespace_object: Value<'v>,
    /// `request`
    pub request: Value<'v>,
    /// `params`
    pub params: Value<'v>,
    /// `authorizer` and `authorizer.requestResource`, for those who may ask it.
    pub authorizer: Option<[Value<'v>; 2]>,
}

/// One look at a request: variables are evaluated at most once.
#[derive(Debug)]
pub struct Activation<'v> {
    values: &'v [Value<'v>],
    variables: &'v [Variable],
    made: RefCell<Vec<Option<Evaluated<'v>>>>,
    /// What variables have cost for the expression that is evaluated.
    spent: Cell<u64>,
    /// The most that they may.
    most: Cell<u64>,
    left_work: Cell<u64>,
}

impl Budget {
    /// Of all expressions of a policy for one request.
    pub const POLICY: Self = Self(10_000_000);
    /// Of all match conditions of a policy or webhook for one request.
    pub const MATCH_CONDITIONS: Self = Self(2_500_000);

    /// What is left.
    pub fn left(self) -> u64 {
        self.0
    }
}

impl std::error::Error for OutOfBudget {}

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "validation failed due to running out of cost budget, no further validation rules will be run",
        )
    }
}

impl<'v> Inputs<'v> {
    /// In the order in which the names are declared.
    pub fn values(self) -> Vec<Value<'v>> {
        let mut values = vec![
            self.object,
            self.old_object,
            self.namespace_object,
            self.request,
            self.params,
        ];
        values.extend(self.authorizer.into_iter().flatten());
        values
    }
}

impl<'v> Activation<'v> {
    /// With the values of [`Inputs::values`].
    pub fn new(values: &'v [Value<'v>], variables: &'v [Variable]) -> Self {
        Self {
            values,
            variables,
            made: RefCell::new(vec![None; variables.len()]),
            spent: Cell::new(0),
            most: Cell::new(0),
            left_work: Cell::new(u64::MAX),
        }
    }

    /// The value of an expression, or why it has none in upstream's words.
    ///
    /// # Errors
    /// [`OutOfBudget`]: nothing more is evaluated.
    pub fn evaluate(
        &self,
        expression: &'v Expression,
        budget: &mut Budget,
    ) -> Result<Result<Value<'v>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(fault) => return Ok(Err(format!("compilation error: {fault}"))),
        };
        self.spent.set(0);
        self.most.set(budget.0);
        // What costs do not see is bounded with them.
        self.left_work
            .set(self.left_work.get().min(budget.0.saturating_mul(3)));
        let mut meter = Meter::new(MOST_OF_ONE).work_at_most(self.left_work.get());
        let found = program.evaluate_composed(&mut meter, self.values, self);
        self.worked(&meter);
        let cost = self.spent.get().saturating_add(meter.cost());
        budget.0 = budget.0.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(found.map_err(|error| {
            format!(
                "expression '{}' resulted in error: {error}",
                expression.text
            )
        }))
    }

    fn worked(&self, meter: &Meter<'_>) {
        let left = self.left_work.get().saturating_sub(meter.worked());
        self.left_work.set(left);
    }

    fn variable(&self, variable: &'v Variable) -> Evaluated<'v> {
        let name = &variable.name;
        let program = variable.expression.program.as_ref().map_err(|fault| {
            EvalError::new(format!(
                "composited variable {name:?} fails to compile: {fault}"
            ))
        })?;
        if self.spent.get() > self.most.get() {
            // It is over anyway: whatever comes of it is not looked at.
            return Err(EvalError::cancelled("operation cancelled"));
        }
        let mut meter = Meter::new(MOST_OF_ONE).work_at_most(self.left_work.get());
        let found = program.evaluate_composed(&mut meter, self.values, self);
        self.worked(&meter);
        self.spent
            .set(self.spent.get().saturating_add(meter.cost()));
        found.map_err(|error| {
            EvalError::new(format!(
                "composited variable {name:?} fails to evaluate: {error}"
            ))
        })
    }
}

impl<'v> Composed<'v> for Activation<'v> {
    fn value(&self, place: usize) -> Evaluated<'v> {
        if let Some(made) = &self.made.borrow()[place] {
            return made.clone();
        }
        let value = self.variable(&self.variables[place]);
        self.made.borrow_mut()[place] = Some(value.clone());
        value
    }
}
