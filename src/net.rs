//! `coracle net`: asks the agent of this node and prints what it says.

use std::cell::Cell;

use coracle_agent::explain::{self, Answer, Question, Verdict};

use crate::{
    Failure,
    cli::{NetArgs, Output},
    run::block_on,
    say,
};

/// Nobody gets the packet.
const EXIT_LOST: u8 = 3;
/// Somebody may, or it is not known.
const EXIT_UNCERTAIN: u8 = 4;

/// Prints the answer; the status says what becomes of a packet.
pub(crate) fn run(args: &NetArgs) -> Result<(), Failure> {
    let question = Question::parse(&args.what, args.to.as_deref());
    let question = question.map_err(|error| Failure::Usage(error.into()))?;
    let status = Cell::new(0);
    block_on(|_| async {
        let answer = explain::ask(&args.run_dir, &question).await?;
        match args.output {
            Output::Text => say(format_args!("{answer}")),
            Output::Json => say(format_args!("{}", answer.to_json())),
        }
        status.set(status_of(&answer));
        Ok(())
    })?;
    match status.get() {
        0 => Ok(()),
        status => Err(Failure::Said(status)),
    }
}

fn status_of(answer: &Answer) -> u8 {
    match answer {
        Answer::Listing(_) => 0,
        Answer::Path(path) => match path.verdict {
            Verdict::Arrives => 0,
            Verdict::Refused | Verdict::Dropped => EXIT_LOST,
            Verdict::Depends | Verdict::Unknown => EXIT_UNCERTAIN,
        },
    }
}
