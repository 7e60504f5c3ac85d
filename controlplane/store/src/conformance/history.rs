//! Reading the past.

use std::{collections::BTreeMap, sync::Arc};

use super::{Outcome, counted, delete, ensure, ensure_eq, put, write};
use crate::{
    backend::Backend,
    error::StoreError,
    types::{KeyValue, RangeRequest, Revision},
};

/// Everything under the root, as of `at`.
pub(super) async fn state_at(
    store: &dyn Backend,
    at: Revision,
) -> Result<Vec<KeyValue>, StoreError> {
    let request = RangeRequest {
        prefix: "/registry/".to_owned(),
        at: Some(at),
        ..RangeRequest::default()
    };
    Ok(store.range(request).await?.items)
}

pub(super) async fn every_past_state_is_served(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let mut states = vec![model.clone()];
    for n in 0..120_usize {
        let key = format!("/registry/pods/ns/{}", n * 7 % 11);
        let other = format!("/registry/configmaps/ns/{}", n * 3 % 5);
        let mut ops = vec![put(&other, &n.to_string())];
        model.insert(other, n.to_string());
        if n % 3 == 2 && model.remove(&key).is_some() {
            ops.push(delete(&key));
        } else {
            ops.push(put(&key, &n.to_string()));
            model.insert(key, n.to_string());
        }
        write(&*store, ops).await?;
        states.push(model.clone());
    }
    for (changes, expected) in (0_u64..).zip(&states) {
        let revision = at(changes);
        let found = state_at(&*store, revision).await?;
        let newest = found
            .iter()
            .map(|kv| kv.mod_revision)
            .max()
            .unwrap_or_default();
        ensure(newest <= revision, || {
            format!("the state at {revision} shows revision {newest}")
        })?;
        let found: BTreeMap<String, String> = found
            .into_iter()
            .map(|kv| {
                (
                    kv.key.to_string(),
                    String::from_utf8_lossy(&kv.value).into_owned(),
                )
            })
            .collect();
        ensure_eq(&found, expected, &format!("the state at {revision}"))?;
    }
    Ok(())
}

pub(super) async fn future_revision_is_refused(store: Arc<dyn Backend>) -> Outcome {
    let current = write(&*store, vec![put("/registry/pods/ns/a", "1")]).await?;
    let ahead = Revision(current.0 + 1);
    let range = state_at(&*store, ahead).await.err();
    let watch = store.watch("/registry/", ahead).await.err();
    let compact = store.compact(ahead).await.err();
    for error in [range, watch, compact] {
        let refused = matches!(error, Some(StoreError::Future { asked, current: at }) if asked == ahead && at == current);
        ensure(refused, || format!("a future revision gave {error:?}"))?;
    }
    state_at(&*store, current).await?;
    Ok(())
}
