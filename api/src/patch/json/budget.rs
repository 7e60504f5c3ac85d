//! What a JSON patch may cost.

use serde_json::Value;

/// Most bytes that `copy` may add, as upstream's `AccumulatedCopySizeLimit`.
const MAX_COPIED_BYTES: usize = 3 << 20;
/// Deepest nesting of the outcome: what can be read back.
const MAX_DEPTH: usize = 127;
/// Most list elements moved aside and values looked through; each takes nanoseconds.
const MAX_WORK: usize = 64 << 20;

/// What is left of the limits. Every method is `None` once one is reached.
pub(super) struct Budget {
    copied_bytes: usize,
    work: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            copied_bytes: MAX_COPIED_BYTES,
            work: MAX_WORK,
        }
    }
}

impl Budget {
    pub(super) fn work(&mut self, amount: usize) -> Option<()> {
        self.work = self.work.checked_sub(amount)?;
        Some(())
    }

    pub(super) fn copy(&mut self, value: &Value) -> Option<Value> {
        self.take_bytes(value)?;
        Some(value.clone())
    }

    fn take_bytes(&mut self, value: &Value) -> Option<()> {
        let own = match value {
            Value::String(text) => text.len() + 2,
            Value::Object(map) => map.keys().map(|key| key.len() + 4).sum::<usize>() + 2,
            Value::Array(items) => items.len() + 2,
            _ => 4,
        };
        self.copied_bytes = self.copied_bytes.checked_sub(own)?;
        match value {
            Value::Object(map) => map.values().try_for_each(|value| self.take_bytes(value)),
            Value::Array(items) => items.iter().try_for_each(|value| self.take_bytes(value)),
            _ => Some(()),
        }
    }

    /// Whether `value` may stand `above` levels deep.
    pub(super) fn nest(&mut self, value: &Value, above: usize) -> Option<()> {
        self.work(1)?;
        let (Value::Object(_) | Value::Array(_)) = value else {
            return Some(());
        };
        if above >= MAX_DEPTH {
            return None;
        }
        match value {
            Value::Object(map) => map
                .values()
                .try_for_each(|value| self.nest(value, above + 1)),
            Value::Array(items) => items
                .iter()
                .try_for_each(|value| self.nest(value, above + 1)),
            _ => Some(()),
        }
    }
}
