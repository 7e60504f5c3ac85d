//! Match conditions: expressions that narrow down what a webhook or a policy is about.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions/matcher.go` and
//! `.../plugin/cel/activation.go` at v1.37.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use coracle_cel::{
    admission::{Activation, Budget, Compiler, Expression, Names, Sort},
    types::Type,
    value::Value as CelValue,
};
use coracle_registry::{
    beside::Weight,
    value::{items, string},
};
use serde_json::Value;

const CONDITION: Sort<'_> = Sort {
    results: &[Type::Bool],
    has_authorizer: true,
    has_patches: false,
};

/// Match conditions, compiled.
#[derive(Debug)]
pub struct MatchConditions {
    all: Vec<Condition>,
    weight: Weight,
}

#[derive(Debug)]
struct Condition {
    name: String,
    expression: Expression,
}

/// What comes of match conditions.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hold.
    Matches,
    /// This one does not hold, whatever the others do.
    Excluded(String),
    /// None is false, and of some it cannot be told, for all that these say. What is to follow is
    /// the failure policy's.
    Failed(String),
}

/// The same for who counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Judged {
    /// Whether one does not hold.
    pub is_excluded: bool,
    /// How many expressions have failed, up to the first that does not hold; 0 if it was the
    /// budget.
    pub errors: usize,
    /// How long it took.
    pub took: Duration,
}

impl MatchConditions {
    /// Reads and compiles them; `has_params` if they may name `params`.
    #[must_use]
    pub fn read(conditions: &Value, has_params: bool) -> Self {
        let compiler = Compiler::without_variables(Names::dynamic(has_params));
        let read = |condition: &Value| Condition {
            name: string(&condition["name"]).to_owned(),
            expression: compiler.compile(string(&condition["expression"]), CONDITION),
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

    /// Evaluates them with the values of [`Inputs`](coracle_cel::admission::Inputs): one that is
    /// false decides, before any that fails.
    #[must_use]
    pub fn judge<'v>(&'v self, values: &'v [CelValue<'v>]) -> (Verdict, Judged) {
        let begun = Instant::now();
        let (verdict, errors) = self.weight.place(|| self.judged(values));
        let judged = Judged {
            is_excluded: matches!(verdict, Verdict::Excluded(_)),
            errors,
            took: begun.elapsed(),
        };
        (verdict, judged)
    }

    /// With the number of errors.
    fn judged<'v>(&'v self, values: &'v [CelValue<'v>]) -> (Verdict, usize) {
        let activation = Activation::new(values, &[]);
        let mut left = Budget::MATCH_CONDITIONS;
        let mut errors = Vec::new();
        let mut excluded = None;
        for condition in &self.all {
            match activation.evaluate(&condition.expression, &mut left) {
                Ok(Ok(CelValue::Bool(true))) => {}
                Ok(Ok(_)) => {
                    excluded.get_or_insert_with(|| (condition.name.clone(), errors.len()));
                }
                Ok(Err(why)) => errors.push(why),
                Err(over) => return (Verdict::Failed(over.to_string()), 0),
            }
        }
        if let Some((name, errors)) = excluded {
            return (Verdict::Excluded(name), errors);
        }
        let count = errors.len();
        if count == 0 {
            return (Verdict::Matches, 0);
        }
        // What several say alike is told once.
        let mut told = HashSet::new();
        errors.retain(|error| told.insert(error.clone()));
        let why = match errors.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        (Verdict::Failed(why), count)
    }
}
