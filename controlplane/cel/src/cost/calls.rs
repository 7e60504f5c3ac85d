//! What calls cost.

use std::sync::Arc;

use super::{
    Coster, Entry,
    called::{Called, Estimate},
    kubernetes,
};
use crate::{ast::Expr, checked::Reference, range::Range};

impl<'a> Coster<'a> {
    pub(super) fn call(
        &mut self,
        expr: &'a Expr,
        function: &str,
        target: Option<&'a Expr>,
        args: &'a [Expr],
    ) -> Range {
        if function == "dyn"
            && let [arg] = args
        {
            let cost = Range::fixed(1).add(self.cost(arg));
            self.copy(expr, arg);
            return cost;
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        let arguments: Vec<_> = args.iter().map(|arg| self.argument(arg)).collect();
        let of_arguments = costs
            .iter()
            .fold(Range::fixed(0), |sum, cost| sum.add(*cost));
        let (name, overloads, namespaced) = match self.checked.references.get(&expr.id) {
            Some(Reference::Call {
                declared,
                overloads,
                namespaced,
            }) => {
                let known = overloads.iter().map(|at| declared.overloads[*at].id);
                (declared.name, known.collect::<Vec<_>>(), *namespaced)
            }
            _ => return of_arguments.add(Range::fixed(1)),
        };
        let mut of_target = Range::fixed(0);
        let mut target_argument = None;
        if let Some(target) = target.filter(|_| !namespaced) {
            of_target = self.cost(target);
            target_argument = Some(self.argument(target));
        }
        let (mut whole, mut size) = (Range::none(false), None::<Range>);
        for overload in &overloads {
            let call = Called {
                expr,
                name,
                overload,
                target: target_argument.as_ref(),
                args: &arguments,
            };
            let estimate = self.overload(&call, &costs, of_arguments);
            whole = whole.union(estimate.cost);
            size = match (size, estimate.size) {
                (Some(size), Some(other)) => Some(size.union(other)),
                (size, other) => size.or(other),
            };
            let step = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), [of, ..]) = (step, args) {
                size = self.entry(of).map(|entry| entry.value);
                let mut path = self.path(of);
                path.push(Arc::from(step));
                self.paths.insert(expr.id, path);
            }
            size = size.or_else(|| self.size(expr));
        }
        if let Some(size) = size {
            self.computed.insert(expr.id, size);
        }
        of_target.add(whole)
    }

    /// One overload with its arguments.
    fn overload(&mut self, call: &Called<'_, 'a>, costs: &[Range], of_args: Range) -> Estimate {
        let with_args = |estimate: Estimate| Estimate {
            cost: estimate.cost.add(of_args),
            size: estimate.size,
        };
        if let Some(estimate) = kubernetes::estimate(call, self.sizes) {
            return with_args(estimate);
        }
        match (call.overload, costs) {
            ("logical_or" | "logical_and", [left, right]) => {
                let cost = Range {
                    min: left.min,
                    max: left.add(*right).max,
                };
                Estimate { cost, size: None }
            }
            ("conditional", [condition, yes, no]) => {
                let size = call.size(1).union(call.size(2));
                let parts = call.args.iter().map(|arg| arg.expr);
                let parts: Vec<_> = parts.flatten().map(|part| self.entry(part)).collect();
                if let [_, yes, no] = parts[..]
                    && let Some(entry) = Entry::union(yes, no)
                {
                    self.entries.insert(call.expr.id, entry);
                }
                Estimate {
                    cost: condition.add(yes.union(*no)),
                    size: Some(size),
                }
            }
            ("add_string" | "add_bytes" | "add_list", [_, _]) => {
                let size = call.size(0).add(call.size(1));
                let parts = call.args.iter().map(|arg| arg.expr);
                let parts: Vec<_> = parts.flatten().map(|part| self.entry(part)).collect();
                if let [a, b] = parts[..]
                    && let Some(entry) = Entry::union(a, b)
                {
                    self.entries.insert(call.expr.id, entry);
                }
                let cost = match call.overload {
                    "add_list" => Range::fixed(1),
                    _ => size.walked(),
                };
                with_args(Estimate {
                    cost,
                    size: Some(size),
                })
            }
            _ => with_args(standard(call).unwrap_or(Estimate {
                cost: Range::fixed(1),
                size: None,
            })),
        }
    }
}

/// Functions of cel-go itself that take longer for longer arguments.
fn standard(call: &Called<'_, '_>) -> Option<Estimate> {
    let target = call
        .target
        .map(|target| target.size.unwrap_or(Range::UNKNOWN));
    match call.overload {
        "string_format" => Estimate::cost(target?.walked()),
        "string_to_bytes" => {
            let size = call.size(0);
            let bytes = Range {
                min: size.min,
                max: size.max.wrapping_mul(4),
            };
            Estimate::sized(size.walked(), bytes)
        }
        "bytes_to_string" => {
            let size = call.size(0);
            let characters = Range {
                min: size.min / 4,
                max: size.max,
            };
            Estimate::sized(size.walked(), characters)
        }
        "strings_quote" => {
            let size = call.size(0);
            let quoted = Range {
                min: size.min.wrapping_add(2),
                max: size.max.wrapping_mul(2).wrapping_add(2),
            };
            Estimate::sized(size.walked(), quoted)
        }
        "starts_with_string" | "ends_with_string" => Estimate::cost(call.size(0).walked()),
        "in_list" => Estimate::cost(call.size(1).factor(1.0)),
        "matches_string" => {
            let text = target?.add(Range::fixed(1)).walked();
            Estimate::cost(text.multiply(call.size(0).factor(0.25)))
        }
        "contains_string" => Estimate::cost(target?.walked().multiply(call.size(0).walked())),
        "equals"
        | "not_equals"
        | "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => {
            let max = call.size(0).max.min(call.size(1).max);
            let min = u64::from(max > 0);
            Estimate::cost(Range { min, max }.walked())
        }
        _ => None,
    }
}
