//! One rule, compiled.

use std::{cell::Cell, rc::Rc, sync::Arc};

use coracle_cel::{
    Program, check,
    cost::estimate,
    env::Env,
    parse,
    schema::{DeclType, DeclTypes},
    types::Type,
};
use coracle_structural::rules::{Brackets, field_at};
use serde_json::{Value, json};

use crate::value::string;

/// A rule of a schema.
pub(super) struct Rule {
    /// As it was written.
    pub(super) text: String,
    /// Empty if there is none.
    pub(super) message: String,
    pub(super) message_text: String,
    pub(super) reason: Option<String>,
    /// As it was written; empty if there is none.
    pub(super) field_path: String,
    /// As errors show it; `None` if it leads nowhere.
    pub(super) field: Option<String>,
    pub(super) optional_old: Option<bool>,
    /// Why it has no program, in upstream's words.
    pub(super) program: Result<Compiled, String>,
    pub(super) message_program: Option<Result<Compiled, String>>,
}

/// An expression that can be evaluated.
pub(super) struct Compiled {
    pub(super) program: Program,
    /// The most it costs.
    pub(super) cost: u64,
    /// Whether it asks for what was before.
    pub(super) uses_old: bool,
}

/// The type of what rules are about, and all types in it.
pub(super) struct Typed {
    pub(super) of: Arc<DeclType>,
    pub(super) types: Arc<DeclTypes>,
    /// Bytes that regular expressions of all rules of the schema may still take.
    pub(super) room: Rc<Cell<usize>>,
}

/// Bytes that regular expressions of all rules of a schema may take: they stay.
pub(super) const MOST_PATTERNS: usize = 32 << 20;

/// What an expression is for.
#[derive(Clone, Copy)]
struct Sort {
    name: &'static str,
    program: &'static str,
    result: &'static Type,
    misfit: &'static str,
}

const RULE: Sort = Sort {
    name: "",
    program: "program ",
    result: &Type::Bool,
    misfit: "cel expression must evaluate to a bool",
};

const MESSAGE: Sort = Sort {
    name: "messageExpression ",
    program: "messageExpression ",
    result: &Type::String,
    misfit: "messageExpression must evaluate to a string",
};

impl Rule {
    /// Compiles a rule on a schema whose values are of a type.
    pub(super) fn read(rule: &Value, schema: &Value, typed: &Typed) -> Self {
        let optional_old = rule["optionalOldSelf"].as_bool();
        let env = typed.env(optional_old == Some(true));
        let text = |name: &str| string(&rule[name]).to_owned();
        let (field_path, message_text) = (text("fieldPath"), text("messageExpression"));
        let program = typed.program(&text("rule"), &env, RULE);
        let has_message = program.is_ok() && !message_text.is_empty();
        let message_program = has_message.then(|| typed.program(&message_text, &env, MESSAGE));
        Self {
            text: text("rule"),
            message: text("message"),
            reason: rule["reason"].as_str().map(str::to_owned),
            field: field_at(schema, &field_path, Brackets::Allowed)
                .map(|field| field.shown)
                .ok(),
            message_text,
            field_path,
            optional_old,
            program,
            message_program,
        }
    }

    pub(super) fn uses_old(&self) -> bool {
        self.program
            .as_ref()
            .is_ok_and(|compiled| compiled.uses_old)
    }

    /// What errors call it.
    pub(super) fn name(&self) -> &str {
        match self.message.as_str() {
            "" => self.text.trim(),
            message => message.trim(),
        }
    }

    /// As upstream prints it in errors: a type of its own, with all of its fields in their order.
    pub(super) fn shown(&self) -> String {
        let fields = [
            ("Rule", json!(self.text)),
            ("Message", json!(self.message)),
            ("MessageExpression", json!(self.message_text)),
            ("Reason", json!(self.reason)),
            ("FieldPath", json!(self.field_path)),
            ("OptionalOldSelf", json!(self.optional_old)),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.join(","))
    }
}

impl Typed {
    fn env(&self, is_optional: bool) -> Env {
        let own = self.of.checked();
        let old = if is_optional {
            Type::optional(own.clone())
        } else {
            own.clone()
        };
        Env::new()
            .variable("self", own)
            .variable("oldSelf", old)
            .types(Arc::clone(&self.types) as _)
    }

    fn program(&self, text: &str, env: &Env, sort: Sort) -> Result<Compiled, String> {
        if self.room.get() == 0 {
            return Err(format!(
                "regular expressions of all rules together take more than {MOST_PATTERNS} bytes when they are compiled"
            ));
        }
        let checked = parse(text).and_then(|ast| check(ast, env));
        let checked =
            checked.map_err(|issues| format!("{}compilation failed: {issues}", sort.name))?;
        if checked.result() != sort.result {
            return Err(sort.misfit.to_owned());
        }
        let program = Program::new(&checked);
        let program =
            program.map_err(|issues| format!("{}instantiation failed: {issues}", sort.program))?;
        let left = self.room.get().saturating_sub(program.patterns_size());
        self.room.set(left);
        Ok(Compiled {
            program,
            cost: estimate(&checked, &|path, _| self.of.size_at(path)).max,
            uses_old: checked.uses("oldSelf"),
        })
    }
}
