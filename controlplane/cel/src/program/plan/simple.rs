//! Nodes that need no plan.

use super::super::node::{Call, Node};
use crate::{
    ast::Literal,
    types::Type,
    value::{Text, Value},
};

/// What an expression that was not checked names, and nobody knows: found out when it is evaluated.
pub(super) fn undeclared() -> Node {
    Node::Call(Box::new(Call {
        name: "",
        functions: Vec::new(),
        cost: None,
        args: Vec::new(),
    }))
}

/// Whether values of a type count as one.
pub(super) fn is_scalar(of: &Type) -> bool {
    matches!(
        of,
        Type::Null
            | Type::Bool
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::Timestamp
            | Type::Duration
    )
}

pub(super) fn two(nodes: Vec<Node>) -> [Node; 2] {
    nodes.try_into().expect("there are two")
}

pub(super) fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(bool) => Value::Bool(*bool),
        Literal::Int(int) => Value::Int(*int),
        Literal::Uint(uint) => Value::Uint(*uint),
        Literal::Double(double) => Value::Double(*double),
        Literal::String(text) => Value::String(Text::Owned(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}
