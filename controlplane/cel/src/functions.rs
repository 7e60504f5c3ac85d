//! Functions: their declarations, what they do, and what they cost.
//!
//! | module | of |
//! |---|---|
//! | `ops`, `order`, `equal`, `numbers` | operators |
//! | `convert`, `times`, `texts`, `formatting` | the standard library and strings, version 2 |
//! | `optionals`, `sets`, `lists` | cel-go's extensions; `lists` also has Kubernetes' |
//! | `regexes`, `urls`, `net`, `quantities`, `semvers`, `formats`, `authz` | Kubernetes' |

pub(crate) mod authz;
pub(crate) mod convert;
pub(crate) mod equal;
pub(crate) mod formats;
mod formatting;
mod lists;
mod net;
mod numbers;
mod ops;
mod optionals;
pub(crate) mod order;
mod quantities;
pub(crate) mod regexes;
mod semvers;
mod sets;
pub(crate) mod texts;
mod times;
mod urls;

pub use self::authz::{Authorizer, Check, Decision, authorizer, resource_check};
use crate::function::Function;

/// All functions.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    [
        ops::FUNCTIONS,
        order::FUNCTIONS,
        convert::FUNCTIONS,
        times::FUNCTIONS,
        texts::FUNCTIONS,
        formatting::FUNCTIONS,
        optionals::FUNCTIONS,
        sets::FUNCTIONS,
        lists::FUNCTIONS,
        lists::extension::FUNCTIONS,
        regexes::FUNCTIONS,
        urls::FUNCTIONS,
        net::FUNCTIONS,
        quantities::FUNCTIONS,
        semvers::FUNCTIONS,
        formats::FUNCTIONS,
        authz::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
}
