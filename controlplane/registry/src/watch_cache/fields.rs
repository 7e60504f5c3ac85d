//! The fields of a kind's objects that field selectors may name, such as `spec.nodeName`: found
//! once, when an object comes.

use std::sync::Arc;

use serde_json::Value;

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
}

impl FieldIndex {
    /// The place of a field among the others.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The fields of an encoded object; equal values share their bytes.
    pub(super) fn read(&self, json: &[u8], pool: &Pool) -> Result<Fields, serde_json::Error> {
        let values = (self.values)(&serde_json::from_slice(json)?);
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
