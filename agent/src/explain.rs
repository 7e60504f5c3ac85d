//! What this node programs for a pod, a Service or a policy, and where a packet would go and why
//! (`coracle net`).
//!
//! ```text
//! question (parsed by the program) --RUN/net.sock, root alone--> gather: plans of proxy and keeper, the kernel's facts
//!    > World (plain data) > path or listing, pure > answer (words or JSON)
//! ```
//!
//! What is said follows from the plan; of the kernel only what makes a difference to it is looked
//! at. Nothing is sent and nothing is written.

mod answer;
mod gather;
mod kernel;
mod listing;
mod overlay;
mod path;
mod places;
mod policies;
mod question;
mod socket;
mod words;
mod world;

pub use self::{
    answer::{Answer, End, Fact, Listing, Party, Path, PolicyStep, Route, ServiceStep, Verdict},
    kernel::{Hop, Kernel},
    question::{Place, Question, QuestionError, Subject, Target},
    socket::{AskError, ask},
    world::{KnownNode, KnownPod, OwnNetwork, PolicyPlan, World},
};
pub(crate) use self::{gather::Gatherer, socket::serve};

impl World {
    /// The answer.
    ///
    /// # Errors
    /// What is asked about is not known, and what to do.
    pub fn answer(&self, question: &Question) -> Result<Answer, String> {
        match question {
            Question::Path { from, to } => {
                path::explain(self, from, to).map(|path| Answer::Path(Box::new(path)))
            }
            Question::Show(subject) => listing::show(self, subject).map(Answer::Listing),
        }
    }
}

#[cfg(test)]
mod tests;
