//! Expressions of policies and of match conditions, as they are compiled when they are written.
//!
//! Source: `validateVariable`, `validateCELCondition` in
//! `pkg/apis/admissionregistration/validation/validation.go` at v1.37.

use coracle_api::status::FieldErrors;
use coracle_cel::{
    admission::{Compiler, Expression, Fault, Names, Sort},
    types::Type,
};
use serde_json::Value;

use crate::value::{items, string};

/// Words that no variable may be called.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// What validations and match conditions are.
pub(super) const VALIDATION: Sort<'_> = Sort {
    results: &[Type::Bool],
    has_authorizer: true,
    has_patches: false,
};

/// What they say if they do not hold.
pub(super) const MESSAGE: Sort<'_> = Sort {
    results: &[Type::String],
    has_authorizer: false,
    has_patches: false,
};

/// What is put on record.
pub(super) const AUDIT_ANNOTATION: Sort<'_> = Sort {
    results: &[Type::String, Type::Null],
    has_authorizer: true,
    has_patches: false,
};

/// Compiles the expressions of one policy or webhook, and tells what is wrong with them.
pub(super) struct Expressions(Compiler);

impl Expressions {
    /// Without variables, which match conditions may not name.
    pub(super) fn of_conditions(has_params: bool) -> Self {
        Self(Compiler::without_variables(Names::dynamic(has_params)))
    }

    /// With all variables of the policy; `has_patches` if they may be made of `Object{}`.
    pub(super) fn new(errors: &mut FieldErrors, spec: &Value, has_patches: bool) -> Self {
        let names = Names::dynamic(spec["paramKind"].is_object());
        let variables = items(&spec["variables"]);
        if variables.is_empty() {
            return Self(Compiler::without_variables(names));
        }
        let mut compiler = Compiler::new(names);
        for (index, variable) in variables.iter().enumerate() {
            let path = format!("spec.variables[{index}]");
            let (name, text) = (string(&variable["name"]), string(&variable["expression"]));
            if name.trim().is_empty() {
                errors.required(format!("{path}.name"), "name is not specified");
            } else if !is_identifier(name) {
                let why = "name is not a valid CEL identifier";
                errors.invalid(format!("{path}.name"), &variable["name"], why);
            }
            let path = format!("{path}.expression");
            if text.trim().is_empty() {
                errors.required(path, "expression is not specified");
                continue;
            }
            let expression = compiler.add_variable(name, text, has_patches);
            told(errors, path, text, expression);
        }
        Self(compiler)
    }

    /// Compiles `text`; errors show it as `shown`.
    pub(super) fn check(
        &self,
        errors: &mut FieldErrors,
        path: impl Into<String>,
        (text, shown): (&str, &str),
        sort: Sort<'_>,
    ) {
        told(errors, path.into(), shown, &self.0.compile(text, sort));
    }
}

fn told(errors: &mut FieldErrors, path: String, shown: &str, expression: &Expression) {
    match expression.fault() {
        Some(Fault::Invalid(why)) => errors.invalid(path, &shown.into(), why),
        Some(Fault::Internal(why)) => errors.internal(path, why),
        None => {}
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let is_first = |byte: u8| is_word(byte) && !byte.is_ascii_digit();
    bytes.next().is_some_and(is_first) && bytes.all(is_word) && !RESERVED.contains(&name)
}
