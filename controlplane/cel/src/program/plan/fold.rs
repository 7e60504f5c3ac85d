//! What is computed beforehand, and what is carried by loops without copies.

use std::{collections::BTreeMap, sync::Arc};

use super::super::node::{Accumulate, Base, Call, Fold, Members, Node, Quantifier};
use crate::{
    build::ACCUMULATOR,
    value::{Key, List, Map, Value},
};

pub(super) fn folded_list(nodes: Vec<(Node, bool)>) -> Node {
    let values = nodes.iter().map(|(node, optional)| match node {
        Node::Const(value) if !optional => Some(value.clone()),
        _ => None,
    });
    match values.collect::<Option<Vec<_>>>() {
        Some(values) => Node::Const(Value::list(values)),
        None => Node::List(nodes),
    }
}

/// A key that is there twice is told when the map is evaluated.
pub(super) fn folded_map(nodes: Vec<(Node, Node, bool)>) -> Node {
    let entries = nodes
        .iter()
        .map(|(key, value, optional)| match (key, value) {
            (Node::Const(key), Node::Const(value)) if !optional => {
                Some((key.key()?, value.clone()))
            }
            _ => None,
        });
    let entries: Option<BTreeMap<Key<'static>, Value<'static>>> = entries.collect();
    match entries {
        Some(entries) if entries.len() == nodes.len() => {
            Node::Const(Value::Map(Map::Owned(Arc::new(entries))))
        }
        _ => Node::Map(nodes),
    }
}

pub(super) fn membership(call: Call) -> Node {
    let values = match &call.args[1] {
        Node::Const(Value::List(List::Owned(values))) => values.clone(),
        _ => return Node::Call(Box::new(call)),
    };
    if values.is_empty() {
        return Node::Const(Value::Bool(false));
    }
    let primitive = values.iter().all(|value| {
        matches!(
            value,
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
        )
    });
    if !primitive {
        return Node::Call(Box::new(call));
    }
    let keys = values.iter().map(Value::key).collect::<Option<_>>();
    let members = match keys {
        Some(keys) => Members::Keys(keys),
        None => Members::Values(values.to_vec()),
    };
    let value = call.args.into_iter().next().expect("it has two arguments");
    Node::MemberOf(Box::new(value), members)
}

/// A step that adds to what is carried, so that it need not be copied.
pub(super) fn accumulated(step: Node, accumulator: usize, name: &str) -> Node {
    if name != ACCUMULATOR {
        return step;
    }
    match step {
        Node::Call(call) if adds(&call, accumulator) => {
            let insert = (call.name == "cel.@mapInsert").then(|| call.functions[0]);
            let mut parts: Vec<Node> = call.args.into_iter().skip(1).collect();
            if insert.is_none()
                && let Some(Node::List(elements)) = parts.pop()
            {
                parts = elements.into_iter().map(|(node, _)| node).collect();
            }
            Node::Accumulate(Box::new(Accumulate {
                accumulator,
                parts,
                insert,
            }))
        }
        Node::Attribute(mut attribute) if attribute.qualifiers.is_empty() => {
            if let Base::Conditional([condition, yes, no]) = attribute.base {
                let yes = accumulated(yes, accumulator, name);
                attribute.base = Base::Conditional([condition, yes, no]);
            }
            Node::Attribute(attribute)
        }
        other => other,
    }
}

fn adds(call: &Call, accumulator: usize) -> bool {
    let to_accumulator = match call.args.first() {
        Some(Node::Attribute(attribute)) => attribute.is_local(accumulator),
        _ => false,
    };
    let one_more = match (call.name, call.args.get(1)) {
        ("_+_", Some(Node::List(elements))) => elements.len() == 1 && !elements[0].1,
        ("cel.@mapInsert", _) => true,
        _ => false,
    };
    to_accumulator && one_more
}

/// A loop that only carries whether it is decided, without what is carried.
pub(super) fn quantifier(fold: Fold) -> Node {
    let decides = match (&fold.init, &fold.condition) {
        (Node::Const(Value::Bool(true)), Node::NotStrictlyFalse(goes_on)) => {
            is_carried(goes_on, &fold).then_some(false)
        }
        (Node::Const(Value::Bool(false)), Node::NotStrictlyFalse(goes_on)) => match &**goes_on {
            Node::Call(call) if call.name == "!_" && is_carried(&call.args[0], &fold) => Some(true),
            _ => None,
        },
        _ => None,
    };
    let joins =
        |operands: &[Node; 2]| is_carried(&operands[0], &fold) && is_carried(&fold.result, &fold);
    let is_one = match (decides, &fold.step) {
        (Some(false), Node::And(operands)) | (Some(true), Node::Or(operands)) => joins(operands),
        _ => false,
    };
    let Some(decides) = decides.filter(|_| is_one) else {
        return Node::Fold(Box::new(fold));
    };
    let (Node::And(operands) | Node::Or(operands)) = fold.step else {
        unreachable!("it was just looked at");
    };
    let [_, predicate] = *operands;
    Node::Quantifier(Box::new(Quantifier {
        range: fold.range,
        first: fold.first,
        second: fold.second,
        predicate,
        decides,
    }))
}

fn is_carried(node: &Node, fold: &Fold) -> bool {
    matches!(node, Node::Attribute(attribute) if attribute.is_local(fold.accumulator))
}
