//! The fields of a kind's objects that field selectors may name, such as `spec.nodeName`: found
//! once, when an object comes.

mod shallow;

use std::sync::Arc;

use serde_json::Value;

use self::shallow::shallow;
use super::pool::Pool;
use crate::api_resource::Text;

type FieldValues = Arc<dyn Fn(&Value) -> Vec<String> + Send + Sync>;

/// Which fields are indexed. `metadata.name` and `metadata.namespace` need not be among them.
#[derive(Clone)]
pub struct FieldIndex {
    /// What they are called.
    pub names: Arc<[Text]>,
    /// Finds their values in an object, in this order.
    pub values: FieldValues,
    /// How much of an object it has to see for that.
    pub reads: FieldReads,
    /// Those of the names that lists go by: what is found by them is looked up. Each costs some
    /// forty bytes an object.
    pub listed: Vec<Text>,
}

/// What of an object the values of its fields are found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldReads {
    /// Texts, numbers and flags of its own and of its members, but for those of the metadata. No
    /// more of it is made into a tree.
    TwoLevels,
    /// All of it.
    Everything,
}

impl FieldIndex {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    /// Those that lists go by, with their places.
    pub(super) fn listed(&self) -> impl Iterator<Item = (usize, &Text)> {
        let names = self.names.iter().enumerate();
        names.filter(|(_, name)| self.listed.contains(name))
    }

    /// Whether lists go by the field in this place.
    pub(super) fn is_listed(&self, at: usize) -> bool {
        self.names
            .get(at)
            .is_some_and(|name| self.listed.contains(name))
    }

    /// The place of a field among the others.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The values of an encoded object, in the order of the names.
    pub(crate) fn values_in(&self, json: &[u8]) -> Result<Vec<String>, serde_json::Error> {
        let object = match self.reads {
            FieldReads::TwoLevels => shallow(json)?,
            FieldReads::Everything => serde_json::from_slice(json)?,
        };
        Ok((self.values)(&object))
    }

    /// The fields of an encoded object; equal values share their bytes.
    pub(super) fn read(&self, json: &[u8], pool: &Pool) -> Result<Fields, serde_json::Error> {
        let values = self.values_in(json)?;
        let values = values.iter().map(|value| pool.share(value)).collect();
        Ok(Fields(Some(Box::new(Indexed {
            names: Arc::clone(&self.names),
            values,
        }))))
    }
}

/// The indexed fields of one object. Most kinds have none, and then it is a word.
#[derive(Clone, Default)]
pub(super) struct Fields(Option<Box<Indexed>>);

#[derive(Clone)]
struct Indexed {
    names: Arc<[Text]>,
    values: Box<[Arc<str>]>,
}

impl Fields {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let Indexed { names, values } = self.0.as_deref()?;
        names
            .iter()
            .zip(values)
            .find_map(|(known, value)| (known == name).then_some(&**value))
    }

    /// In the order of their names.
    pub(super) fn values(&self) -> &[Arc<str>] {
        self.0.as_ref().map_or(&[], |indexed| &indexed.values)
    }
}
