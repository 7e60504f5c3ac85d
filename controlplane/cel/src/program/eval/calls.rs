//! Calls: their arguments, what they cost, and which of several functions it is.

use super::{
    super::node::{Call, Node, uncancelled},
    Evaluation,
};
use crate::{
    function::Function,
    meter::Meter,
    value::{EvalError, Evaluated, Value},
};

/// Up to so many arguments are all evaluated, even if the first has no value, as upstream does.
const FEW: usize = 2;

impl<'v> Evaluation<'v, '_, '_> {
    pub(super) fn call(&mut self, call: &'v Call) -> Evaluated<'v> {
        // Most calls are these: they need no memory of their own.
        if let [function] = &*call.functions {
            match &*call.args {
                [arg] => return self.single(call, function, arg),
                [first, second] => return self.pair(call, function, first, second),
                _ => {}
            }
        }
        let args = self.args(call)?;
        let value = apply(self.meter, &call.functions, &args);
        self.charge(call, &args, value)
    }

    fn single(&mut self, call: &Call, function: &Function, arg: &'v Node) -> Evaluated<'v> {
        match self.node(arg) {
            Ok(arg) => {
                let args = [arg];
                let value = (function.call)(self.meter, &args);
                self.charged(call, &[Some(&args[0])], value)
            }
            failed => self.charged(call, &[None], failed),
        }
    }

    fn pair(
        &mut self,
        call: &Call,
        function: &Function,
        first: &'v Node,
        second: &'v Node,
    ) -> Evaluated<'v> {
        let first = match self.node(first) {
            Err(error) if error.is_cancelled() => return Err(error),
            first => first,
        };
        let second = match self.node(second) {
            Err(error) if error.is_cancelled() => return Err(error),
            second => second,
        };
        match (first, second) {
            (Ok(first), Ok(second)) => {
                let args = [first, second];
                let value = (function.call)(self.meter, &args);
                self.charged(call, &[Some(&args[0]), Some(&args[1])], value)
            }
            (Err(error), second) => self.charged(call, &[None, second.as_ref().ok()], Err(error)),
            (first, Err(error)) => self.charged(call, &[first.as_ref().ok(), None], Err(error)),
        }
    }

    /// All arguments of a call.
    pub(super) fn args(&mut self, call: &'v Call) -> Result<Vec<Value<'v>>, EvalError> {
        let mut args = Vec::with_capacity(call.args.len());
        let mut failed: Option<EvalError> = None;
        for arg in &call.args {
            let value = self.node(arg);
            match uncancelled(value)? {
                Ok(value) => args.push(value),
                Err(error) if call.args.len() > FEW => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let Some(error) = failed else {
            return Ok(args);
        };
        let charged = cost(call, &vec![None; call.args.len()], None);
        self.meter.charge(charged)?;
        Err(error)
    }

    pub(super) fn charge(
        &mut self,
        call: &Call,
        args: &[Value<'v>],
        value: Evaluated<'v>,
    ) -> Evaluated<'v> {
        let args: Vec<Option<&Value<'v>>> = args.iter().map(Some).collect();
        self.charged(call, &args, value)
    }

    fn charged(
        &mut self,
        call: &Call,
        args: &[Option<&Value<'v>>],
        value: Evaluated<'v>,
    ) -> Evaluated<'v> {
        if value.as_ref().is_err_and(EvalError::is_cancelled) {
            return value;
        }
        let charged = cost(call, args, value.as_ref().ok());
        self.meter.charge(charged)?;
        value
    }
}

/// The first function that takes the arguments.
pub(in super::super) fn apply<'v>(
    meter: &mut Meter<'_>,
    functions: &[&'static Function],
    args: &[Value<'v>],
) -> Evaluated<'v> {
    let Some((last, first)) = functions.split_last() else {
        return Err(EvalError::no_such_overload());
    };
    for function in first {
        match (function.call)(meter, args) {
            Err(error) if error == EvalError::no_such_overload() => {}
            other => return other,
        }
    }
    (last.call)(meter, args)
}

fn cost(call: &Call, args: &[Option<&Value<'_>>], value: Option<&Value<'_>>) -> u64 {
    call.cost.map_or(1, |count| count(args, value))
}
