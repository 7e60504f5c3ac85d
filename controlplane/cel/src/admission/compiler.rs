//! From the texts of a policy to expressions.

use std::{fmt, sync::Arc};

use super::names::Names;
use crate::{
    ast::MAX_DEPTH,
    checker::check,
    env::{Composition, Env},
    parser::parse,
    program::Program,
    types::Type,
};

/// What the evaluator needs of the stack between two expressions, in levels of a tree.
const BETWEEN: u32 = 4;

/// What an expression is for.
#[derive(Debug, Clone, Copy)]
pub struct Sort<'a> {
    /// The types that its value may have; with none, any.
    pub results: &'a [Type],
    /// Whether it may ask the authorizer.
    pub has_authorizer: bool,
    /// Whether it may make patches.
    pub has_patches: bool,
}

/// Why an expression does not compile, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is wrong.
    Invalid(String),
    /// A constant part of it cannot be computed.
    Internal(String),
}

/// An expression as it was written, and what is evaluated.
#[derive(Debug)]
pub struct Expression {
    /// As it was written.
    pub text: String,
    pub(super) program: Result<Program, Fault>,
    /// How deep its evaluation goes, through the variables that it asks for.
    depth: u32,
    result: Type,
}

/// An expression with a name.
#[derive(Debug)]
pub struct Variable {
    pub(super) name: Arc<str>,
    /// What it stands for.
    pub expression: Expression,
}

/// Compiles the expressions of one policy.
#[derive(Debug)]
pub struct Compiler {
    names: Names,
    composition: Option<Arc<Composition>>,
    variables: Vec<Variable>,
}

impl Compiler {
    /// For expressions that may name these, and variables.
    pub fn new(names: Names) -> Self {
        Self {
            composition: Some(Arc::default()),
            ..Self::without_variables(names)
        }
    }

    /// For expressions that may name these, and no variables.
    pub fn without_variables(names: Names) -> Self {
        Self {
            names,
            composition: None,
            variables: Vec::new(),
        }
    }

    /// Adds a variable, which those after it may name; it is there even if it does not compile.
    pub fn add_variable(&mut self, name: &str, text: &str, has_patches: bool) -> &Expression {
        let expression = self.compile(
            text,
            Sort {
                results: &[],
                has_authorizer: true,
                has_patches,
            },
        );
        let name: Arc<str> = name.into();
        if let Some(composition) = &self.composition {
            let place = self.variables.len();
            composition.add(Arc::clone(&name), place, &expression.result);
        }
        self.variables.push(Variable { name, expression });
        &self.variables[self.variables.len() - 1].expression
    }

    /// Compiles an expression, which may name all variables that are there.
    pub fn compile(&self, text: &str, sort: Sort<'_>) -> Expression {
        let composition = self.composition.clone();
        let env = self
            .names
            .env(composition, sort.has_authorizer, sort.has_patches);
        match self.compiled(text, &env, sort) {
            Ok((program, depth, result)) => Expression {
                text: text.to_owned(),
                program: Ok(program),
                depth,
                result,
            },
            Err(fault) => Expression {
                text: text.to_owned(),
                program: Err(fault),
                depth: 0,
                result: Type::Dyn,
            },
        }
    }

    fn compiled(
        &self,
        text: &str,
        env: &Env,
        sort: Sort<'_>,
    ) -> Result<(Program, u32, Type), Fault> {
        let checked = parse(text).and_then(|ast| check(ast, env));
        let checked =
            checked.map_err(|issues| Fault::Invalid(format!("compilation failed: {issues}")))?;
        let result = checked.result();
        if !sort.results.is_empty() && !sort.results.contains(result) {
            return Err(Fault::Invalid(misfit(sort.results, result)));
        }
        let program = Program::new(&checked)
            .map_err(|issues| Fault::Internal(format!("program instantiation failed: {issues}")))?;
        let below = program.composed().iter();
        let below = below.map(|place| self.variables[*place].expression.depth + BETWEEN);
        let depth = u32::from(checked.ast().root.depth) + below.max().unwrap_or(0);
        // Upstream's stacks grow.
        if depth > u32::from(MAX_DEPTH) {
            return Err(Fault::Invalid(format!(
                "compilation failed: expression and the variables that it names are nested {depth} \
                 deep together, and {MAX_DEPTH} is the most: name fewer variables within variables"
            )));
        }
        Ok((program, depth, result.clone()))
    }

    /// Variables in the order in which they were added.
    pub fn into_variables(self) -> Vec<Variable> {
        self.variables
    }
}

impl Expression {
    /// Why it does not compile, if it does not.
    pub fn fault(&self) -> Option<&Fault> {
        self.program.as_ref().err()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid(why) | Self::Internal(why)) = self;
        f.write_str(why)
    }
}

fn misfit(expected: &[Type], found: &Type) -> String {
    let found = declared(found);
    match expected {
        [one] => format!("must evaluate to {} but got {found}", declared(one)),
        several => {
            let names: Vec<String> = several.iter().map(declared).collect();
            format!(
                "must evaluate to one of [{}] but got {found}",
                names.join(" ")
            )
        }
    }
}

/// A type by the names that cel-go's types have for themselves; messages of the checker have
/// shorter ones.
fn declared(of: &Type) -> String {
    match of {
        Type::List(element) => format!("list({})", declared(element)),
        Type::Map(entry) => format!("map({}, {})", declared(&entry.0), declared(&entry.1)),
        Type::Null | Type::Timestamp | Type::Duration => of.runtime_name().to_owned(),
        other => other.to_string(),
    }
}
