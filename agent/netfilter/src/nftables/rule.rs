//! Parts of rules that several tables have. Pure.

use super::expression::{Connection, Expression, Register, Verdict};

pub(super) type Rule = Vec<Expression>;

/// The packets that match have this verdict.
pub(super) fn when(mut matches: Rule, verdict: Verdict) -> Rule {
    matches.push(Expression::Verdict(verdict));
    matches
}

/// The packet's connection is in one of these states.
pub(super) fn in_state(states: u32, scratch: Register) -> Rule {
    of_connection(Connection::State, states, scratch)
}

/// The packet's connection has one of these bits of what the kernel knows about it.
pub(super) fn of_connection(what: Connection, mask: u32, scratch: Register) -> Rule {
    vec![
        Expression::Connection(what, scratch),
        bits(scratch, mask, 0),
        Expression::Differs(scratch, vec![0; 4]),
    ]
}

/// `register = register & mask ^ flip`, of a number in the machine's byte order.
pub(super) fn bits(register: Register, mask: u32, flip: u32) -> Expression {
    Expression::Bits {
        register,
        mask: mask.to_ne_bytes().to_vec(),
        flip: flip.to_ne_bytes().to_vec(),
    }
}
