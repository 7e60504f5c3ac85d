//! Match conditions: expressions that narrow down what a webhook or a policy is about.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions/matcher.go` and
//! `.../plugin/cel/activation.go` at v1.37.

use coracle_cel::{
    Meter, Program,
    env::Env,
    types::Type,
    value::{EvalError, Value as CelValue},
};
use coracle_registry::{
    beside::Weight,
    expressions,
    value::{items, string},
};
use serde_json::Value;

use super::variables::Variables;

/// What evaluating one expression may cost.
pub const MOST_OF_ONE: u64 = 1_000_000;
/// What all match conditions of a webhook or a policy may cost together.
const MOST_OF_ALL: u64 = 2_500_000;
const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Match conditions, compiled.
#[derive(Debug)]
pub struct MatchConditions {
    all: Vec<Condition>,
    weight: Weight,
}

#[derive(Debug)]
struct Condition {
    name: String,
    text: String,
    program: Result<Program, String>,
}

/// What comes of match conditions.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hold.
    Matches,
    /// This one does not hold, whatever the others do.
    Excluded(String),
    /// None is false, and of some it cannot be told. What is to follow is the failure policy's.
    Failed {
        /// Of all of them.
        why: String,
        /// How many expressions have failed; 0 if it was the budget.
        errors: usize,
    },
}

impl MatchConditions {
    /// Reads and compiles them.
    #[must_use]
    pub fn read(conditions: &Value, env: &Env) -> Self {
        let read = |condition: &Value| {
            let text = string(&condition["expression"]);
            Condition {
                name: string(&condition["name"]).to_owned(),
                program: expressions::compile(text, env, &Type::Bool),
                text: text.to_owned(),
            }
        };
        Self {
            all: items(conditions).iter().map(read).collect(),
            weight: Weight::default(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Evaluates them: one that is false decides, before any that fails.
    #[must_use]
    pub fn judge(&self, variables: &Variables<'_>) -> Verdict {
        self.weight.place(|| self.judged(variables))
    }

    fn judged(&self, variables: &Variables<'_>) -> Verdict {
        let mut left = MOST_OF_ALL;
        let mut errors = Vec::new();
        let mut excluded = None;
        for condition in &self.all {
            let program = match &condition.program {
                Ok(program) => program,
                Err(why) => {
                    errors.push(format!("compilation error: {why}"));
                    continue;
                }
            };
            let mut meter = Meter::new(MOST_OF_ONE.min(left));
            let evaluated = program.evaluate(&mut meter, variables.values());
            let is_over =
                matches!(&evaluated, Err(error) if error.is_cancelled()) && left <= MOST_OF_ONE;
            if is_over || meter.cost() > left {
                return Verdict::Failed {
                    why: NO_BUDGET.to_owned(),
                    errors: 0,
                };
            }
            left -= meter.cost();
            match evaluated {
                Ok(CelValue::Bool(true)) => {}
                Ok(CelValue::Bool(false)) => {
                    excluded.get_or_insert_with(|| condition.name.clone());
                }
                Ok(_) => errors.push(condition.failed(&EvalError::new("no such overload"))),
                Err(error) => errors.push(condition.failed(&error)),
            }
        }
        match (excluded, errors.as_slice()) {
            (Some(name), _) => Verdict::Excluded(name),
            (None, []) => Verdict::Matches,
            (None, [one]) => Verdict::Failed {
                why: one.clone(),
                errors: 1,
            },
            (None, several) => Verdict::Failed {
                why: format!("[{}]", several.join(", ")),
                errors: several.len(),
            },
        }
    }
}

impl Condition {
    fn failed(&self, error: &EvalError) -> String {
        format!("expression '{}' resulted in error: {error}", self.text)
    }
}
