//! Whether the sender of a request may do what it asks for, by rules that may be a moment old.

use coracle_api::status::Status;
use coracle_auth::authz::Attributes;

use crate::{
    limits::Requester,
    slow::{Step, Timing},
    state::State,
};

impl State {
    /// Allows, or says why not. A refusal is looked at twice: a role may have been written a moment
    /// ago. Who waits for that has one of the seats of those who wait, as there are only so many.
    ///
    /// # Errors
    /// 401 for nobody, 403 for somebody, 429 if too many wait.
    pub(crate) async fn authorize(
        &self,
        requester: Requester,
        attributes: &Attributes<'_>,
    ) -> Result<(), Status> {
        if self.authorizer.allows(attributes) {
            return Ok(());
        }
        let _timing = Timing::of(Step::Authorization);
        let _seat = self.limits.waiting_seat(requester)?;
        // If the cache cannot follow, the answer is as good as no.
        let _ = self.store.cache.catch_up().await;
        self.authorizer.authorize(attributes)
    }
}
