//! Fills in what is absent and has a default in the schema.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/algorithm.go` at v1.37.

use std::io;

use serde_json::Value;

use super::typed::{Members, Typed};

/// The most that is filled into one object, in bytes of its JSON. More than any store takes of one:
/// what gets none of its defaults for this is refused for its size.
const MOST: usize = 4 << 20;

/// Fills in what is absent within. A null that may not be is as good as absent. Idempotent, as long
/// as it all is no more than [`MOST`]: a default in a list is there once for each element.
pub(crate) fn default<T: Typed>(place: T, value: &mut Value) {
    Filling { left: MOST }.within(place, value);
}

struct Filling {
    /// Bytes that may still be filled in.
    left: usize,
}

impl Filling {
    fn within<T: Typed>(&mut self, place: T, value: &mut Value) {
        if place.is_free() {
            return;
        }
        match value {
            Value::Object(map) => {
                place.each_member(|name, member| {
                    if !map.contains_key(name)
                        && let Some(default) = self.take(member, name.len())
                    {
                        map.insert(name.to_owned(), default);
                    }
                });
                for (name, value) in map {
                    let member = match place.members() {
                        Members::None => None,
                        Members::Struct => place.member(name),
                        Members::Map(each) => Some(each),
                    };
                    if let Some(member) = member {
                        self.fill(member, value);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(element) = place.element() {
                    list.iter_mut().for_each(|value| self.fill(element, value));
                }
            }
            _ => {}
        }
    }

    /// A value that is there.
    fn fill<T: Typed>(&mut self, place: T, value: &mut Value) {
        if value.is_null()
            && !place.is_nullable()
            && let Some(default) = self.take(place, 0)
        {
            *value = default;
        }
        self.within(place, value);
    }

    /// A default, for a member with a name of so many bytes, if there is one and room for it.
    fn take<T: Typed>(&mut self, place: T, name: usize) -> Option<Value> {
        if self.left == 0 {
            return None;
        }
        let default = place.default()?;
        self.left = self.left.saturating_sub(name + length(&default));
        Some(default)
    }
}

/// Of its JSON.
fn length(value: &Value) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A counter takes everything.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}
