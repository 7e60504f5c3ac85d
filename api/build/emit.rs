//! Writes the table as one compact file; `src/schema/blob.rs` reads it in place. All numbers are
//! little-endian.
//!
//! ```text
//! type   24 bytes: name (4+2), description (4+2), group/version (4+2), first field (2), field count (2), atomic (1), kind (1)
//! field  48 bytes: name (4+2), description (4+2), via tags (2x2), tag (2), shape (1), element (1), type (2),
//!                  flags (1), list type (1), list keys, patch strategy, merge key, default (4x6)
//! kind   14 bytes: group (4+2), kind (4+2), type (2): ordered by group, kind, version of the type
//! text   an offset into the text section (4) and a length (2); names come first, descriptions after them
//! ```

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use crate::join::{Element, Field, Shape, Type};

const ELEMENTS: [&str; 19] = [
    "Any",
    "Object",
    "Bool",
    "Int32",
    "Int64",
    "Double",
    "String",
    "Bytes",
    "Time",
    "MicroTime",
    "Quantity",
    "IntOrString",
    "RawExtension",
    "Json",
    "FieldsV1",
    "StringList",
    "SchemaOrArray",
    "SchemaOrBool",
    "SchemaOrStringArray",
];

#[derive(Default)]
struct Texts {
    seen: BTreeMap<String, u32>,
    bytes: Vec<u8>,
}

impl Texts {
    fn add(&mut self, text: &str) -> [u8; 6] {
        let len = u16::try_from(text.len())
            .expect("no text is longer than 65535 bytes")
            .to_le_bytes();
        let next = u32::try_from(self.bytes.len()).expect("a small table");
        let at = *self.seen.entry(text.to_owned()).or_insert(next);
        if at == next {
            self.bytes.extend_from_slice(text.as_bytes());
        }
        let at = at.to_le_bytes();
        [at[0], at[1], at[2], at[3], len[0], len[1]]
    }
}

/// Writes `schema.bin` and `schema_layout.rs`.
pub(crate) fn write(types: &[Type], out: &Path) {
    let index: BTreeMap<&str, u16> = types
        .iter()
        .zip(0..)
        .map(|(t, i)| (t.name.as_str(), i))
        .collect();
    let mut texts = Texts::default();
    // Short texts first, so that decoding touches few pages.
    for ty in types {
        texts.add(&ty.name);
        for field in &ty.fields {
            texts.add(&field.name);
        }
    }
    let (mut type_bytes, mut field_bytes, mut first) = (Vec::new(), Vec::new(), 0_u16);
    for ty in types {
        let count = u16::try_from(ty.fields.len()).expect("a type has few fields");
        let [group, version, _] = ty.gvk.clone().unwrap_or_default();
        type_bytes.extend(texts.add(&ty.name));
        type_bytes.extend(texts.add(&ty.description));
        type_bytes.extend(texts.add(&format!("{group}/{version}")));
        type_bytes.extend(first.to_le_bytes());
        type_bytes.extend(count.to_le_bytes());
        type_bytes.extend([u8::from(ty.atomic), u8::from(ty.gvk.is_some())]);
        first += count;
        ty.fields
            .iter()
            .for_each(|field| write_field(field, &index, &mut texts, &mut field_bytes));
    }
    let mut kinds: Vec<(&[String; 3], u16)> = types
        .iter()
        .filter_map(|t| Some((t.gvk.as_ref()?, index[t.name.as_str()])))
        .collect();
    kinds.sort();
    let mut kind_bytes = Vec::new();
    for ([group, version, kind], ty) in &kinds {
        kind_bytes.extend(texts.add(&format!("{group}/{version}")));
        kind_bytes.extend(texts.add(kind));
        kind_bytes.extend(ty.to_le_bytes());
    }
    let mut layout = String::new();
    let mut bytes = Vec::new();
    for (name, section) in [
        ("TYPES", type_bytes),
        ("FIELDS", field_bytes),
        ("KINDS", kind_bytes),
        ("TEXTS", texts.bytes),
    ] {
        let end = bytes.len() + section.len();
        writeln!(
            layout,
            "pub(super) const {name}: std::ops::Range<usize> = {}..{end};",
            bytes.len()
        )
        .expect("a string");
        bytes.extend(section);
    }
    std::fs::write(out.join("schema.bin"), bytes).expect("OUT_DIR is writable");
    std::fs::write(out.join("schema_layout.rs"), layout).expect("OUT_DIR is writable");
}

fn write_field(field: &Field, index: &BTreeMap<&str, u16>, texts: &mut Texts, out: &mut Vec<u8>) {
    let (element, ty) = match &field.element {
        Element::Any => ("Any", 0),
        Element::Simple(name) => (*name, 0),
        Element::Object(name) => (
            "Object",
            *index
                .get(name.as_str())
                .unwrap_or_else(|| panic!("no type {name} for {}", field.name)),
        ),
    };
    let element = ELEMENTS
        .iter()
        .position(|e| *e == element)
        .expect("a known element");
    let (tag, via) = field
        .tags
        .split_last()
        .map_or((0, &[][..]), |(tag, via)| (*tag, via));
    let list_type = match field.list_type.as_str() {
        "" => 0,
        "atomic" => 1,
        "set" => 2,
        "map" => 3,
        other => panic!("{}: list type {other}", field.name),
    };
    out.extend(texts.add(&field.name));
    out.extend(texts.add(&field.description));
    for i in 0..2 {
        out.extend(via.get(i).copied().unwrap_or(0).to_le_bytes());
    }
    out.extend(tag.to_le_bytes());
    out.push(match field.shape {
        Shape::One => 0,
        Shape::List => 1,
        Shape::Map => 2,
    });
    out.push(u8::try_from(element).expect("few elements"));
    out.extend(ty.to_le_bytes());
    let map_type = match field.map_type.as_str() {
        "" => 0,
        "atomic" => 2,
        "granular" => 4,
        other => panic!("{}: map type {other}", field.name),
    };
    out.push(
        u8::from(field.required)
            | map_type
            | u8::from(field.plain) << 3
            | u8::from(field.pointer) << 4,
    );
    out.push(list_type);
    for text in [
        &field.list_keys,
        &field.patch_strategy,
        &field.merge_key,
        &field.default,
    ] {
        out.extend(texts.add(text));
    }
}
