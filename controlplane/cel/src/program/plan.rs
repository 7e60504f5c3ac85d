//! From a tree to a program.
//!
//! What upstream computes when it makes a program is computed here too, and costs nothing later:
//! lists and maps of constants, conversions of constants, and `in` with such a list.

mod fold;
mod simple;

use std::{collections::HashMap, sync::Arc};

use self::{
    fold::{accumulated, folded_list, folded_map, membership, quantifier},
    simple::{constant, is_scalar, two, undeclared},
};
use super::node::{Attribute, Base, Call, Fold, Node, Plan, Qualifier, QualifierKind};
use crate::{
    ast::{Ast, Comprehension, Expr, ExprId, ExprKind},
    checked::{Checked, Reference},
    env::{self, Env, Named},
    function::{Cost, Function, charged},
    functions::convert::CONVERSIONS,
    meter::Meter,
    patterns,
    source::{Issue, Issues},
    value::Value,
};

/// The longest list or map of constants that is computed once.
const CONSTANT_BUDGET: u64 = 1_000_000;

type Planned<T> = Result<T, Issue>;

pub(super) fn plan(ast: &Ast, env: &Env, checked: Option<&Checked>) -> Result<Plan, Issues> {
    let mut planner = Planner {
        ast,
        env,
        references: checked.map(|checked| &checked.references),
        checked,
        scope: Vec::new(),
        locals: 0,
        patterns: 0,
        composed: Vec::new(),
    };
    match planner.node(&ast.root) {
        Ok(root) => Ok(Plan {
            root,
            locals: planner.locals,
            patterns: planner.patterns,
            composed: planner.composed,
        }),
        Err(issue) => Err(Issues::one(ast.source.clone(), issue)),
    }
}

struct Planner<'a> {
    ast: &'a Ast,
    env: &'a Env,
    references: Option<&'a HashMap<ExprId, Reference>>,
    checked: Option<&'a Checked>,
    /// Names of loops' variables, by their places.
    scope: Vec<Arc<str>>,
    locals: usize,
    patterns: usize,
    composed: Vec<usize>,
}

impl Planner<'_> {
    fn issue(&self, expr: &Expr, message: String) -> Issue {
        Issue {
            offset: Some(self.ast.offset(expr.id)),
            message,
        }
    }

    fn node(&mut self, expr: &Expr) -> Planned<Node> {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(Node::Const(constant(literal))),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => self.select(expr, operand, field, *test_only),
            ExprKind::Call {
                function,
                target,
                args,
            } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements } => {
                let nodes = elements.iter();
                let nodes = nodes.map(|(element, optional)| Ok((self.node(element)?, *optional)));
                Ok(folded_list(nodes.collect::<Planned<_>>()?))
            }
            ExprKind::Map { entries } => {
                let nodes = entries.iter().map(|(key, value, optional)| {
                    Ok((self.node(key)?, self.node(value)?, *optional))
                });
                Ok(folded_map(nodes.collect::<Planned<_>>()?))
            }
            ExprKind::Struct { type_name, fields } => {
                let nodes = fields.iter().map(|(_, field, value, optional)| {
                    Ok((field.clone(), self.node(value)?, *optional))
                });
                let name = type_name.strip_prefix('.').unwrap_or(type_name);
                Ok(Node::Object(name.into(), nodes.collect::<Planned<_>>()?))
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.scope.iter().rposition(|known| **known == *name)
    }

    /// What the checker found, or what the environment has of that name.
    fn reference(&self, expr: &Expr, name: &str) -> Option<Node> {
        let found = match self.references {
            Some(references) => references.get(&expr.id).cloned(),
            None => self.env.named(name).map(|named| match named {
                Named::Variable(at, _) => Reference::Variable(at),
                Named::Type(of) => Reference::Type(of.clone()),
            }),
        };
        match found? {
            Reference::Variable(at) => Some(attribute(Base::Variable(at))),
            Reference::Type(of) => Some(Node::Const(Value::Type(of))),
            Reference::Call { .. } => None,
        }
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Planned<Node> {
        if let Some(place) = self.place(name) {
            return Ok(attribute(Base::Local(place)));
        }
        Ok(self.reference(expr, name).unwrap_or_else(undeclared))
    }

    fn select(
        &mut self,
        expr: &Expr,
        operand: &Expr,
        field: &Arc<str>,
        test_only: bool,
    ) -> Planned<Node> {
        let qualified = operand.qualified().filter(|name| {
            let first = name.split('.').next().unwrap_or("");
            self.place(first).is_none()
        });
        let named = qualified
            .and_then(|name| self.reference(expr, &format!("{name}.{field}")))
            .filter(|_| !test_only);
        if let Some(node) = named {
            return Ok(node);
        }
        let mut attribute = into_attribute(self.node(operand)?);
        if let Some(place) = self.composed(&attribute, field) {
            // That it is there is known by now.
            return Ok(match test_only {
                true => Node::Const(Value::Bool(true)),
                false => self::attribute(Base::Composed(place)),
            });
        }
        attribute.qualifiers.push(Qualifier {
            kind: QualifierKind::Field(field.clone()),
            optional: false,
        });
        attribute.test_only = test_only;
        Ok(Node::Attribute(Box::new(attribute)))
    }

    /// The place of a field of the composed variable.
    fn composed(&mut self, attribute: &Attribute, field: &str) -> Option<usize> {
        let Base::Variable(at) = attribute.base else {
            return None;
        };
        let place = attribute.qualifiers.is_empty().then_some(at);
        let place = place.and_then(|at| self.env.composed_at(at, field))?;
        self.composed.push(place);
        Some(place)
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Planned<Node> {
        if target.is_none()
            && let Some(node) = self.special(function, args)?
        {
            return Ok(node);
        }
        let Some((name, functions, exact, namespaced)) =
            self.functions(expr, function, target, args)
        else {
            return Ok(undeclared());
        };
        let mut nodes = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target.filter(|_| !namespaced) {
            nodes.push(self.node(target)?);
        }
        for arg in args {
            nodes.push(self.node(arg)?);
        }
        if matches!(name, "or" | "orValue") && nodes.len() == 2 {
            let [first, second] = two(nodes);
            return Ok(Node::OptionalOr(
                Box::new([first, second]),
                name == "orValue",
            ));
        }
        let scalars = self
            .checked
            .is_some_and(|checked| args.iter().all(|arg| is_scalar(checked.type_of(arg))));
        let plain = functions.iter().all(|function| match function.cost {
            Cost::One => true,
            Cost::Named(_) => scalars && matches!(name, "_==_" | "_!=_"),
            Cost::Overload(_) => !exact || (scalars && target.is_none()),
        });
        let call = Call {
            name,
            cost: if plain {
                None
            } else {
                charged(&functions, exact)
            },
            functions,
            args: nodes,
        };
        self.folded_call(expr, call)
    }

    /// Operators that do not evaluate all their operands, or look into them.
    fn special(&mut self, function: &str, args: &[Expr]) -> Planned<Option<Node>> {
        let node = match (function, args) {
            ("_&&_", [a, b]) => Node::And(Box::new([self.node(a)?, self.node(b)?])),
            ("_||_", [a, b]) => Node::Or(Box::new([self.node(a)?, self.node(b)?])),
            ("_?_:_", [a, b, c]) => {
                let parts = [self.node(a)?, self.node(b)?, self.node(c)?];
                attribute(Base::Conditional(parts))
            }
            ("@not_strictly_false", [a]) => Node::NotStrictlyFalse(Box::new(self.node(a)?)),
            ("_[_]" | "_[?_]" | "_?._", [operand, index]) => {
                let mut attribute = into_attribute(self.node(operand)?);
                let kind = match self.node(index)? {
                    Node::Const(Value::String(text)) => QualifierKind::Field((&*text).into()),
                    Node::Const(value) => QualifierKind::Key(value),
                    node => QualifierKind::Expr(node),
                };
                attribute.qualifiers.push(Qualifier {
                    kind,
                    optional: function != "_[_]",
                });
                Node::Attribute(Box::new(attribute))
            }
            _ => return Ok(None),
        };
        Ok(Some(node))
    }

    /// Name, functions, whether the overload is known, and whether the target is part of the name.
    fn functions(
        &self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Option<(&'static str, Vec<&'static Function>, bool, bool)> {
        let (declared, overloads, namespaced) = match self.references {
            Some(references) => match references.get(&expr.id) {
                Some(Reference::Call {
                    declared,
                    overloads,
                    namespaced,
                }) => (*declared, overloads.clone(), *namespaced),
                _ => return None,
            },
            None => {
                let prefixed = target.and_then(Expr::qualified);
                let prefixed =
                    prefixed.and_then(|prefix| env::function(&format!("{prefix}.{function}")));
                let namespaced = prefixed.is_some();
                let declared = prefixed.or_else(|| env::function(function))?;
                let member = target.is_some() && !namespaced;
                let count = args.len() + usize::from(member);
                let overloads = declared.overloads.iter().enumerate();
                let fitting = overloads
                    .filter(|(_, known)| known.member == member && known.args.len() == count);
                let fitting = fitting.map(|(at, _)| at).collect();
                (declared, fitting, namespaced)
            }
        };
        let mut functions: Vec<&'static Function> = Vec::new();
        for at in &overloads {
            let function = declared.overloads[*at].function;
            if !functions.iter().any(|known| std::ptr::eq(*known, function)) {
                functions.push(function);
            }
        }
        let exact = overloads.len() == 1;
        (!functions.is_empty()).then_some((declared.name, functions, exact, namespaced))
    }

    fn folded_call(&mut self, expr: &Expr, call: Call) -> Planned<Node> {
        if let ("matches" | "find" | "findAll", Some(Node::Const(Value::String(pattern)))) =
            (call.name, call.args.get(1))
        {
            if self.patterns > patterns::MOST {
                let what = format!(
                    "regular expressions take more than {} bytes together when they are compiled",
                    patterns::MOST
                );
                return Err(self.issue(expr, what));
            }
            let compiled = patterns::compile(pattern).map_err(|error| self.issue(expr, error))?;
            self.patterns += compiled.size;
            return Ok(Node::Regex(Box::new(call), compiled.regex));
        }
        if let ("@in", [_, Node::Const(Value::List(_))]) = (call.name, &*call.args) {
            return Ok(membership(call));
        }
        if let [Node::Const(value)] = &*call.args
            && CONVERSIONS.contains(&call.name)
        {
            let mut meter = Meter::new(CONSTANT_BUDGET);
            let value =
                super::eval::calls::apply(&mut meter, &call.functions, std::slice::from_ref(value));
            return value
                .map(Node::Const)
                .map_err(|error| self.issue(expr, error.to_string()));
        }
        Ok(Node::Call(Box::new(call)))
    }

    fn fold(&mut self, fold: &Comprehension) -> Planned<Node> {
        let range = self.node(&fold.iter_range)?;
        let init = self.node(&fold.accu_init)?;
        let accumulator = self.push(&fold.accu_var);
        let first = self.push(&fold.iter_var);
        let second = fold.iter_var2.as_ref().map(|name| self.push(name));
        let condition = self.node(&fold.loop_condition)?;
        let step = self.node(&fold.loop_step)?;
        let step = accumulated(step, accumulator, &fold.accu_var);
        self.scope.truncate(accumulator + 1);
        let result = self.node(&fold.result)?;
        self.scope.truncate(accumulator);
        Ok(quantifier(Fold {
            range,
            first,
            second,
            accumulator,
            init,
            condition,
            step,
            result,
        }))
    }

    fn push(&mut self, name: &Arc<str>) -> usize {
        self.scope.push(name.clone());
        self.locals = self.locals.max(self.scope.len());
        self.scope.len() - 1
    }
}

fn attribute(base: Base) -> Node {
    Node::Attribute(Box::new(Attribute {
        base,
        qualifiers: Vec::new(),
        test_only: false,
    }))
}

/// What is looked into further.
fn into_attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) if !attribute.test_only => *attribute,
        node => Attribute {
            base: Base::Value(node),
            qualifiers: Vec::new(),
            test_only: false,
        },
    }
}
