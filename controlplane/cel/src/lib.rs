//! The Common Expression Language (CEL) as Kubernetes uses it.
//!
//! | module | does |
//! |---|---|
//! | [`source`] | the text, and messages that point into it |
//! | `lexer`, `literal`, `parser`, `macros`, `build` | from a text to a tree |
//! | [`ast`] | the tree |
//! | [`types`], [`mod@env`] | types, and what an expression may name |
//! | `checker`, `checked` | whether the parts fit, and which overloads calls mean |
//! | [`cost`] | what an expression may cost, before it is evaluated |
//! | [`schema`] | types of data that has a schema |
//! | [`value`], `data`, `containers`, `time` | values, over JSON that is borrowed |
//! | `function`, `functions` | functions: declared, done, charged |
//! | `program` | from a checked tree to what is evaluated, and its evaluation |
//! | `meter`, `patterns` | budget and interruption; regular expressions and how large they are |
//! | [`admission`] | expressions of policies and match conditions |
//!
//! [`parse()`], [`check()`], [`Program::new`], [`Program::evaluate`]: in this order. A [`Program`]
//! is made once, and evaluated over and over, by many at the same time.
//!
//! It knows nothing of the server, and reads no clock.

#![forbid(unsafe_code)]

pub mod admission;
pub mod ast;
mod build;
mod checked;
mod checker;
mod containers;
pub mod cost;
mod data;
pub mod env;
mod function;
mod functions;
mod lexer;
mod literal;
mod macros;
mod meter;
mod parser;
mod patterns;
mod program;
mod range;
pub mod schema;
pub mod source;
mod time;
pub mod types;
pub mod value;

pub use checked::Checked;
pub use checker::check;
pub use functions::{Authorizer, Check, Decision, authorizer, resource_check};
pub use meter::Meter;
pub use parser::parse;
pub use program::{Composed, Program};
