//! What an expression may cost at least and at most, before it is evaluated: by sizes that schemas
//! bound. Kubernetes refuses rules by it, so that it must be upstream's to the unit.
//!
//! Source: `checker/cost.go` of cel-go, before calls without a target were told apart.

mod called;
mod calls;
mod kubernetes;

use std::{collections::HashMap, sync::Arc};

use self::called::Argument;
pub use self::called::{Path, Sizes};
pub use crate::range::Range;
use crate::{
    ast::{Comprehension, Expr, ExprId, ExprKind, Literal},
    build::ACCUMULATOR,
    checked::Checked,
    types::Type,
};

/// What an expression costs.
pub fn estimate(checked: &Checked, sizes: &Sizes<'_>) -> Range {
    let mut coster = Coster {
        checked,
        sizes,
        paths: HashMap::new(),
        locals: Vec::new(),
        computed: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(&checked.ast.root)
}

/// Sizes of what is in a list or a map.
#[derive(Debug, Clone, Copy)]
struct Entry {
    list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn union(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (a, b) = (a?, b?);
        Some(Self {
            list: a.list,
            key: a.key.union(b.key),
            value: a.value.union(b.value),
        })
    }
}

/// A variable of a loop.
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entry: Option<Entry>,
}

struct Coster<'a> {
    checked: &'a Checked,
    sizes: &'a Sizes<'a>,
    paths: HashMap<ExprId, Path>,
    locals: Vec<Local>,
    computed: HashMap<ExprId, Range>,
    entries: HashMap<ExprId, Entry>,
}

impl<'a> Coster<'a> {
    fn cost(&mut self, expr: &'a Expr) -> Range {
        match &expr.kind {
            ExprKind::Literal(_) => Range::fixed(0),
            ExprKind::Ident(name) => {
                let local = self.local(name).map(|local| local.path.clone());
                let path = local.unwrap_or_else(|| vec![name.clone()]);
                self.paths.insert(expr.id, path);
                Range::fixed(1)
            }
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
                let (mut sum, mut size) = (Range::fixed(10), Range::none(elements.is_empty()));
                for (element, _) in elements {
                    sum = sum.add(self.cost(element));
                    size = size.union(self.size_or_unknown(element));
                }
                let entry = Entry {
                    list: true,
                    key: Range::fixed(1),
                    value: size,
                };
                self.entries.insert(expr.id, entry);
                sum
            }
            ExprKind::Map { entries } => {
                let mut sum = Range::fixed(30);
                let mut keys = Range::none(entries.is_empty());
                let mut values = keys;
                for (key, value, _) in entries {
                    sum = sum.add(self.cost(key)).add(self.cost(value));
                    keys = keys.union(self.size_or_unknown(key));
                    values = values.union(self.size_or_unknown(value));
                }
                let entry = Entry {
                    list: false,
                    key: keys,
                    value: values,
                };
                self.entries.insert(expr.id, entry);
                sum
            }
            ExprKind::Struct { fields, .. } => {
                let values = fields.iter();
                values.fold(Range::fixed(40), |sum, (_, _, value, _)| {
                    sum.add(self.cost(value))
                })
            }
            ExprKind::Comprehension(fold) if is_bind(fold) => self.bind(expr, fold),
            ExprKind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| *local.name == *name)
    }

    fn select(
        &mut self,
        expr: &Expr,
        operand: &'a Expr,
        field: &Arc<str>,
        test_only: bool,
    ) -> Range {
        if self.checked.references.contains_key(&expr.id) {
            return Range::fixed(1);
        }
        let sum = self.cost(operand);
        if test_only {
            return sum;
        }
        let mut path = self.path(operand);
        path.push(field.clone());
        self.paths.insert(expr.id, path);
        match self.checked.type_of(operand) {
            Type::Map(_) | Type::Object(_) | Type::Param(_) => sum.add(Range::fixed(1)),
            _ => sum,
        }
    }

    fn path(&self, expr: &Expr) -> Path {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn argument(&mut self, expr: &'a Expr) -> Argument<'a> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|first| **first == *ACCUMULATOR) {
            path.clear();
        }
        Argument {
            path,
            of: self.checked.type_of(expr).clone(),
            size: self.size(expr),
            expr: Some(expr),
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.computed.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = written(expr) {
            return Some(Range::fixed(size));
        }
        let path = self.path(expr);
        let of = self.checked.type_of(expr);
        if let Some(size) = (self.sizes)(&path, of) {
            self.computed.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(of) {
            return Some(Range::fixed(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entry(&self, expr: &Expr) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&expr.id) {
            return Some(*entry);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.entry),
            _ => None,
        }
    }

    fn push(&mut self, name: &Arc<str>, expr: &Expr) {
        let local = Local {
            name: name.clone(),
            path: self.path(expr),
            size: self.size(expr),
            entry: self.entry(expr),
        };
        self.locals.push(local);
    }

    /// A loop's variable: an element, an index or a key, or a value.
    fn push_iteration(&mut self, name: &Arc<str>, range: &Expr, steps: [&str; 2], keys: [bool; 2]) {
        let entry = self.entry(range);
        let list = match entry {
            Some(entry) => entry.list,
            None => matches!(self.checked.type_of(range), Type::List(_)),
        };
        let at = usize::from(!list);
        let mut path = self.path(range);
        path.push(steps[at].into());
        let size = entry.map(|entry| if keys[at] { entry.key } else { entry.value });
        self.locals.push(Local {
            name: name.clone(),
            path,
            size,
            entry: None,
        });
    }

    fn bind(&mut self, expr: &Expr, fold: &'a Comprehension) -> Range {
        let sum = self.cost(&fold.iter_range).add(self.cost(&fold.accu_init));
        self.push(&fold.accu_var, &fold.accu_init);
        let sum = sum.add(self.cost(&fold.result));
        self.locals.pop();
        self.copy(expr, &fold.result);
        sum
    }

    fn copy(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.computed.insert(to.id, size);
        }
        if let Some(entry) = self.entry(from) {
            self.entries.insert(to.id, entry);
        }
    }

    fn fold(&mut self, expr: &Expr, fold: &'a Comprehension) -> Range {
        let sum = self.cost(&fold.iter_range).add(self.cost(&fold.accu_init));
        self.push(&fold.accu_var, &fold.accu_init);
        let outer = self.locals.len();
        match &fold.iter_var2 {
            Some(second) => {
                let range = &fold.iter_range;
                self.push_iteration(&fold.iter_var, range, ["@indices", "@keys"], [true, true]);
                self.push_iteration(second, range, ["@items", "@values"], [false, false]);
            }
            None => self.push_iteration(
                &fold.iter_var,
                &fold.iter_range,
                ["@items", "@keys"],
                [false, true],
            ),
        }
        let condition = self.cost(&fold.loop_condition);
        let step = self.cost(&fold.loop_step);
        self.locals.truncate(outer);
        let sum = sum.add(self.cost(&fold.result));
        self.locals.truncate(outer - 1);
        let turns = self.size_or_unknown(&fold.iter_range);
        match &fold.accu_init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&fold.accu_init) {
                    self.computed.insert(expr.id, size);
                }
            }
            ExprKind::List { .. } | ExprKind::Map { .. } => {
                self.computed.insert(expr.id, turns);
                if let Some(entry) = self.entry(&fold.loop_step) {
                    self.entries.insert(expr.id, entry);
                }
            }
            _ => {}
        }
        sum.add(turns.multiply(step.add(condition)))
    }
}

/// A name for a value: a loop over nothing that carries what nothing adds to.
fn is_bind(fold: &Comprehension) -> bool {
    let nothing =
        matches!(&fold.iter_range.kind, ExprKind::List { elements } if elements.is_empty());
    let never = matches!(
        fold.loop_condition.kind,
        ExprKind::Literal(Literal::Bool(false))
    );
    nothing && never && *fold.accu_var != *ACCUMULATOR
}

/// The size of what is written in the expression.
fn written(expr: &Expr) -> Option<u64> {
    let size = match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count(),
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List { elements } => elements.len(),
        ExprKind::Map { entries } => entries.len(),
        _ => return None,
    };
    Some(size as u64)
}

fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        other => other.optional_value().is_some_and(is_scalar),
    }
}
