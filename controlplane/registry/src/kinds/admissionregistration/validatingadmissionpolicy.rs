//! ValidatingAdmissionPolicy: expressions that requests must satisfy.
//!
//! Source: `pkg/registry/admissionregistration/validatingadmissionpolicy/strategy.go` at v1.37.

use std::collections::HashSet;

use coracle_api::{meta, status::FieldErrors};
use serde_json::Value;

use super::{
    expressions::{AUDIT_ANNOTATION, Expressions, MESSAGE, VALIDATION},
    policies,
};
use crate::{
    cells::{AGE, NAME, integer},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{items, string},
};

/// The strategy of ValidatingAdmissionPolicies.
pub struct ValidatingAdmissionPolicy;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    categories: &["api-extensions"],
    subresources: &[Subresource::Status],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
    ),
    policies::PARAM_KIND,
    AGE,
];

const MAX_ANNOTATIONS: usize = 20;
/// In bytes.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
/// `Unauthorized` is in the field's description, and is refused all the same.
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];

impl BuiltIn for ValidatingAdmissionPolicy {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ValidatingAdmissionPolicy {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        policies::default_policy(object);
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        policies::policy(&mut errors, spec);
        let expressions = Expressions::new(&mut errors, spec, false);
        let (validations, annotations) = (
            items(&spec["validations"]),
            items(&spec["auditAnnotations"]),
        );
        if validations.is_empty() && annotations.is_empty() {
            for list in ["validations", "auditAnnotations"] {
                let why = "validations or auditAnnotations must contain at least one item";
                errors.required(format!("spec.{list}"), why);
            }
        }
        for (index, one) in validations.iter().enumerate() {
            let path = format!("spec.validations[{index}]");
            validation(&mut errors, &path, one, &expressions);
        }
        if annotations.len() > MAX_ANNOTATIONS {
            let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
            errors.invalid("spec.auditAnnotations", &spec["auditAnnotations"], why);
        }
        let mut keys = HashSet::new();
        for (index, annotation) in annotations.iter().enumerate() {
            let path = format!("spec.auditAnnotations[{index}]");
            let name = meta::name(object);
            audit_annotation(&mut errors, &path, (name, annotation), &expressions);
            if !keys.insert(&annotation["key"]) {
                errors.duplicate(format!("{path}.key"), &annotation["key"]);
            }
        }
        errors
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        errors.extend(super::reserved_name(object));
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let warnings = items(&new["status"]["typeChecking"]["expressionWarnings"]);
        for (index, warning) in warnings.iter().enumerate() {
            let path = format!("status.typeChecking.expressionWarnings[{index}]");
            check::required(&mut errors, &format!("{path}.warning"), &warning["warning"]);
            if string(&warning["fieldRef"]).trim().is_empty() {
                errors.required(format!("{path}.fieldRef"), "");
            }
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        policies::policy_row(object, "validations", now_secs)
    }
}

fn validation(errors: &mut FieldErrors, path: &str, one: &Value, expressions: &Expressions) {
    let text = |field: &str| string(&one[field]);
    let at = format!("{path}.expression");
    match text("expression") {
        blank if blank.trim().is_empty() => errors.required(at, "expression is not specified"),
        text => expressions.check(errors, at, (text, text), VALIDATION),
    }
    let at = format!("{path}.messageExpression");
    match text("messageExpression") {
        "" => {}
        blank if blank.trim().is_empty() => {
            errors.invalid(
                at,
                &one["messageExpression"],
                "must be non-empty if specified",
            );
        }
        text => expressions.check(errors, at, (text, text), MESSAGE),
    }
    let (at, message) = (format!("{path}.message"), text("message"));
    if !message.is_empty() && message.trim().is_empty() {
        let why = "message must be non-empty if specified";
        errors.invalid(at, &one["message"], why);
    } else if message.trim().contains(['\n', '\r']) {
        let why = "message must not contain line breaks";
        errors.invalid(at, &one["message"], why);
    }
    check::optional_one_of(errors, &format!("{path}.reason"), &one["reason"], REASONS);
}

fn audit_annotation(
    errors: &mut FieldErrors,
    path: &str,
    (policy, annotation): (&str, &Value),
    expressions: &Expressions,
) {
    let (at, key) = (format!("{path}.key"), string(&annotation["key"]));
    if policy.is_empty() {
        let why = "requires metadata.name be non-empty";
        errors.invalid(at, &annotation["key"], why);
    } else {
        check::qualified_name(errors, &at, &format!("{policy}/{key}").into());
    }
    let at = format!("{path}.valueExpression");
    let written = string(&annotation["valueExpression"]);
    match written.trim() {
        "" => errors.required(at, "valueExpression is not specified"),
        text if text.len() > MAX_VALUE_EXPRESSION => {
            let why = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            errors.required(at, why);
        }
        text => expressions.check(errors, at, (text, written), AUDIT_ANNOTATION),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, with};

    #[test]
    fn policies_are_checked() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": "true"}]}});
        for (pointer, value, expect) in [
            ("/spec/failurePolicy", json!("Ignore"), ""),
            (
                "/spec/matchConstraints",
                Value::Null,
                "spec.matchConstraints: Required value",
            ),
            (
                "/spec/validations",
                json!([]),
                "[spec.validations: Required value: validations or auditAnnotations must contain at least one item, \
                 spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]",
            ),
            (
                "/spec/validations",
                json!([{}]),
                "spec.validations[0].expression: Required value: expression is not specified",
            ),
            (
                "/spec/failurePolicy",
                json!("x"),
                "spec.failurePolicy: Unsupported value: \"x\": supported values: \"Fail\", \"Ignore\"",
            ),
        ] {
            let found = create_errors(
                &ValidatingAdmissionPolicy,
                with(&policy, pointer, value.clone()),
            );
            assert_eq!(found, expect, "{pointer} = {value}");
        }
        let object = created(&ValidatingAdmissionPolicy, policy);
        assert_eq!(
            json!(ValidatingAdmissionPolicy.row(&object, 0)),
            json!(["p", 1, "<unset>", "<unknown>"])
        );
        assert_eq!(
            object["spec"]["matchConstraints"]["matchPolicy"],
            "Equivalent"
        );
    }

    fn policy() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "variables": [{"name": "x", "expression": "object.spec"}],
            "validations": [{"expression": "true", "messageExpression": "'a'", "reason": "Forbidden"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]}})
    }

    fn check(pointer: &str, value: Value, expect: &str) {
        let found = create_errors(
            &ValidatingAdmissionPolicy,
            with(&policy(), pointer, value.clone()),
        );
        assert_eq!(found, expect, "{pointer} = {value}");
    }

    #[test]
    fn expressions_are_compiled_when_they_are_written() {
        for (pointer, value, expect) in [
            (
                "/spec/variables/0/expression",
                json!("authorizer.path('/a').check('get')"),
                "",
            ),
            (
                "/spec/validations/0/expression",
                json!("variables.x == request.name"),
                "",
            ),
            (
                "/spec/validations/0/messageExpression",
                json!("'a' + variables.x.a"),
                "",
            ),
            (
                "/spec/auditAnnotations/0/valueExpression",
                json!("has(object.a) ? 'a' : null"),
                "spec.auditAnnotations[0].valueExpression: Invalid value: \"has(object.a) ? 'a' : null\": \
                 compilation failed: ERROR: <input>:1:15: found no matching overload for '_?_:_' applied to \
                 '(bool, string, null)'\n | has(object.a) ? 'a' : null\n | ..............^",
            ),
            (
                "/spec/validations/0/expression",
                json!("object.spec"),
                "spec.validations[0].expression: Invalid value: \"object.spec\": must evaluate to bool but got dyn",
            ),
            (
                "/spec/validations/0/expression",
                json!(" "),
                "spec.validations[0].expression: Required value: expression is not specified",
            ),
            (
                "/spec/validations/0/expression",
                json!("params.a == 1"),
                "spec.validations[0].expression: Invalid value: \"params.a == 1\": compilation failed: ERROR: \
                 <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^",
            ),
            (
                "/spec/validations/0/expression",
                json!("variables.y"),
                "spec.validations[0].expression: Invalid value: \"variables.y\": compilation failed: ERROR: \
                 <input>:1:10: undefined field 'y'\n | variables.y\n | .........^",
            ),
            (
                "/spec/validations/0/messageExpression",
                json!("authorizer.path('/').check('get').reason()"),
                "spec.validations[0].messageExpression: Invalid value: \"authorizer.path('/').check('get').reason()\": \
                 compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n \
                 | authorizer.path('/').check('get').reason()\n | ^",
            ),
            (
                "/spec/validations/0/messageExpression",
                json!("1"),
                "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
            ),
            (
                "/spec/validations/0/messageExpression",
                json!(" "),
                "spec.validations[0].messageExpression: Invalid value: \" \": must be non-empty if specified",
            ),
            (
                "/spec/validations/0/message",
                json!("a\nb"),
                "spec.validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks",
            ),
            (
                "/spec/validations/0/reason",
                json!("Other"),
                "spec.validations[0].reason: Unsupported value: \"Other\": supported values: \"Forbidden\", \
                 \"Invalid\", \"RequestEntityTooLarge\"",
            ),
            (
                "/spec/variables/0/name",
                json!("a-b"),
                "spec.variables[0].name: Invalid value: \"a-b\": name is not a valid CEL identifier",
            ),
            (
                "/spec/variables/0/name",
                json!("loop"),
                "spec.variables[0].name: Invalid value: \"loop\": name is not a valid CEL identifier",
            ),
            (
                "/spec/variables/0/expression",
                json!("Object{}"),
                "spec.variables[0].expression: Invalid value: \"Object{}\": compilation failed: ERROR: <input>:1:7: \
                 undeclared reference to 'Object' (in container '')\n | Object{}\n | ......^",
            ),
        ] {
            check(pointer, value, expect);
        }
    }

    #[test]
    fn annotations_and_parameters_have_names() {
        let name = "prefix part a DNS-1123";
        let found = create_errors(
            &ValidatingAdmissionPolicy,
            with(&policy(), "/spec/auditAnnotations/0/key", json!("a/b")),
        );
        assert!(
            found.starts_with("spec.auditAnnotations[0].key: Invalid value: \"p/a/b\":"),
            "{name}: {found}"
        );
        let twice =
            json!([{"key": "k", "valueExpression": "'v'"}, {"key": "k", "valueExpression": "'v'"}]);
        check(
            "/spec/auditAnnotations",
            twice,
            "spec.auditAnnotations[1].key: Duplicate value: \"k\"",
        );
        for (kind, expect) in [
            (json!({"apiVersion": "v1", "kind": "ConfigMap"}), ""),
            (
                json!({"apiVersion": "a/b/c", "kind": "ConfigMap"}),
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                json!({"apiVersion": "example.com/", "kind": "ConfigMap"}),
                "spec.paramKind.apiVersion: Invalid value: \"example.com/\": version must be specified",
            ),
            (
                json!({"apiVersion": "v1"}),
                "spec.paramKind.kind: Required value",
            ),
            (
                json!({"kind": "A"}),
                "spec.paramKind.apiVersion: Required value",
            ),
        ] {
            check("/spec/paramKind", kind, expect);
        }
        let names = |names: Value| {
            with(
                &policy(),
                "/spec/matchConstraints/resourceRules/0/resourceNames",
                names,
            )
        };
        assert_eq!(
            create_errors(&ValidatingAdmissionPolicy, names(json!(["a", "a", "b/c"]))),
            "[spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: \"a\", \
             spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: \"b/c\": may not contain '/']"
        );
    }
}
