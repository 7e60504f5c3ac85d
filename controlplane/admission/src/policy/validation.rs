//! The expressions of a ValidatingAdmissionPolicy, and what comes of them for one write.
//!
//! Upstream evaluates every messageExpression; here those of validations that hold are left out:
//! they say nothing, and cost.
//!
//! Source: `.../policy/validating/validator.go` at v1.37.

use std::time::{Duration, Instant};

use coracle_api::status::Reason;
use coracle_cel::{
    admission::{Activation, Budget, Compiler, Expression, Names, Sort, Variable},
    types::Type,
    value::Value as CelValue,
};
use coracle_registry::{
    beside::Weight,
    value::{items, string},
};
use serde_json::Value;

use super::view::Values;
use crate::matching::{Judged, MatchConditions, Verdict};

/// The longest message that an expression makes, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

const VALIDATION: Sort<'_> = Sort {
    results: &[Type::Bool],
    has_authorizer: true,
    has_patches: false,
};
const MESSAGE: Sort<'_> = Sort {
    results: &[Type::String],
    has_authorizer: false,
    has_patches: false,
};
const ANNOTATION: Sort<'_> = Sort {
    results: &[Type::String, Type::Null],
    has_authorizer: true,
    has_patches: false,
};

/// What is evaluated for a policy.
pub(super) struct Validator {
    conditions: MatchConditions,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
    is_strict: bool,
    /// Of an evaluation.
    pub(super) weight: Weight,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: Option<Reason>,
}

struct Annotation {
    key: String,
    expression: Expression,
}

/// What a validation says of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Admit,
    /// It cannot be told, and the failure policy lets it pass.
    Ignore {
        message: String,
    },
    Deny {
        message: String,
        reason: Reason,
    },
}

/// What an annotation is to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Publish { key: String, value: String },
    Refuse(String),
}

/// What a policy says of a write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Validated {
    /// In the order of the validations.
    pub(super) decisions: Vec<Decision>,
    /// How long each has taken.
    pub(super) times: Vec<Duration>,
    pub(super) annotations: Vec<Recorded>,
    /// What its match conditions have come to, if it has some.
    pub(super) judged: Option<Judged>,
}

impl Validator {
    /// Compiles a policy.
    pub(super) fn compile(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let has_params = spec["paramKind"].is_object();
        let mut compiler = Compiler::new(Names::dynamic(has_params));
        for variable in items(&spec["variables"]) {
            let (name, text) = (string(&variable["name"]), string(&variable["expression"]));
            compiler.add_variable(name, text, false);
        }
        let validations = items(&spec["validations"]).iter().map(|validation| {
            let text = |field: &str| string(&validation[field]);
            let message_expression = match text("messageExpression") {
                "" => None,
                text => Some(compiler.compile(text, MESSAGE)),
            };
            Validation {
                expression: compiler.compile(text("expression"), VALIDATION),
                message: text("message").trim().to_owned(),
                message_expression,
                reason: validation["reason"].as_str().map(Reason::from_text),
            }
        });
        let validations = validations.collect();
        let annotations = items(&spec["auditAnnotations"]).iter().map(|annotation| {
            let text = string(&annotation["valueExpression"]);
            Annotation {
                key: string(&annotation["key"]).to_owned(),
                expression: compiler.compile(text, ANNOTATION),
            }
        });
        let annotations = annotations.collect();
        Self {
            conditions: MatchConditions::read(&spec["matchConditions"], has_params),
            variables: compiler.into_variables(),
            validations,
            annotations,
            is_strict: spec["failurePolicy"] != "Ignore",
            weight: Weight::default(),
        }
    }

    /// What it says of a write that looks like this.
    pub(super) fn validate<'v>(&'v self, values: &'v Values<'v>, budget: Budget) -> Validated {
        if self.conditions.is_empty() {
            return self.evaluated(values, budget);
        }
        let (verdict, judged) = self.conditions.judge(&values.all);
        let validated = match verdict {
            Verdict::Matches => self.evaluated(values, budget),
            Verdict::Excluded(_) => Validated::default(),
            Verdict::Failed(_) if !self.is_strict => Validated::default(),
            Verdict::Failed(why) => self.failed(why),
        };
        Validated {
            judged: Some(judged),
            ..validated
        }
    }

    fn evaluated<'v>(&'v self, values: &'v Values<'v>, budget: Budget) -> Validated {
        let mut left = budget;
        let activation = Activation::new(&values.all, &self.variables);
        let mut found = Vec::with_capacity(self.validations.len());
        let mut times = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            let begun = Instant::now();
            let evaluated = activation.evaluate(&validation.expression, &mut left);
            times.push(begun.elapsed());
            match evaluated {
                Ok(value) => found.push(value),
                Err(over) => return self.failed(over.to_string()),
            }
        }
        let decisions = self.decisions(&found, values, left);
        match self.recorded(values, budget) {
            Ok(annotations) => Validated {
                decisions,
                times,
                annotations,
                judged: None,
            },
            Err(over) => self.failed(over),
        }
    }

    /// What is to follow when it cannot be told whether a write is allowed.
    fn on_error(&self, message: String) -> Decision {
        match self.is_strict {
            true => Decision::Deny {
                message,
                reason: Reason::Invalid,
            },
            false => Decision::Ignore { message },
        }
    }

    /// What it says of a write that it cannot be shown.
    pub(super) fn unseen(&self, why: String) -> Validated {
        self.failed(why)
    }

    fn failed(&self, why: String) -> Validated {
        Validated {
            decisions: vec![self.on_error(why)],
            times: vec![Duration::ZERO],
            ..Validated::default()
        }
    }

    fn decisions<'v>(
        &'v self,
        found: &[Result<CelValue<'v>, String>],
        values: &'v Values<'v>,
        mut left: Budget,
    ) -> Vec<Decision> {
        let messages = Activation::new(&values.plain, &self.variables);
        let mut over = None;
        let decide = |(validation, found): (&'v Validation, &Result<CelValue<'v>, String>)| {
            match (found, &over) {
                (Err(why), _) => return self.on_error(why.clone()),
                (Ok(CelValue::Bool(true)), _) => return Decision::Admit,
                (_, Some(over)) => {
                    return self.on_error(format!("failed messageExpression: {over}"));
                }
                _ => {}
            }
            let mut made = None;
            if let Some(expression) = &validation.message_expression {
                match messages.evaluate(expression, &mut left) {
                    Ok(Ok(CelValue::String(text))) => made = told(&text),
                    Ok(_) => {}
                    Err(end) => {
                        over = Some(end);
                        return self.on_error(format!("failed messageExpression: {end}"));
                    }
                }
            }
            Decision::Deny {
                message: made.unwrap_or_else(|| validation.message()),
                reason: validation.reason.unwrap_or(Reason::Invalid),
            }
        };
        self.validations.iter().zip(found).map(decide).collect()
    }

    /// # Errors
    /// There is no budget for all of them.
    fn recorded<'v>(
        &'v self,
        values: &'v Values<'v>,
        mut left: Budget,
    ) -> Result<Vec<Recorded>, String> {
        let activation = Activation::new(&values.all, &self.variables);
        let mut recorded = Vec::new();
        for annotation in &self.annotations {
            let value = activation.evaluate(&annotation.expression, &mut left);
            match value.map_err(|over| over.to_string())? {
                Ok(CelValue::String(text)) if text.trim().is_empty() => {}
                Ok(CelValue::String(text)) => recorded.push(Recorded::Publish {
                    key: annotation.key.clone(),
                    value: text.trim().to_owned(),
                }),
                Ok(CelValue::Null) => {}
                Ok(other) => recorded.push(Recorded::Refuse(format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                    annotation.expression.text,
                    other.type_of().runtime_name()
                ))),
                Err(why) if self.is_strict => recorded.push(Recorded::Refuse(why)),
                Err(_) => {}
            }
        }
        Ok(recorded)
    }
}

impl Validation {
    fn message(&self) -> String {
        match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression.text.trim()),
            message => message.to_owned(),
        }
    }
}

/// A message that may be told.
fn told(text: &str) -> Option<String> {
    let text = text.trim();
    let is_told = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    is_told.then(|| text.to_owned())
}
