//! Input as a tree, JSON and CBOR alike: bounded in depth and number, duplicates kept so that they can be refused.
//! Knows no record type, and never shows a value.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::cbor::Reader;
use crate::error::{ErrorCode, FieldError, RecordErrors};
use crate::limits::{DEPTH_MAX, VALUES_MAX};

/// One value of the input.
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    Uint(u64),
    /// A negative integer.
    Int(i64),
    Float,
    /// An integer beyond 64 bits.
    Wide,
    Text(Cow<'a, str>),
    Bytes(Vec<u8>),
    List(Vec<Node<'a>>),
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl Node<'_> {
    fn into_owned(self) -> Node<'static> {
        match self {
            Node::Null => Node::Null,
            Node::Bool(value) => Node::Bool(value),
            Node::Uint(value) => Node::Uint(value),
            Node::Int(value) => Node::Int(value),
            Node::Float => Node::Float,
            Node::Wide => Node::Wide,
            Node::Text(text) => Node::Text(Cow::Owned(text.into_owned())),
            Node::Bytes(bytes) => Node::Bytes(bytes),
            Node::List(list) => Node::List(list.into_iter().map(Node::into_owned).collect()),
            Node::Map(map) => Node::Map(
                map.into_iter()
                    .map(|(key, node)| (Cow::Owned(key.into_owned()), node.into_owned()))
                    .collect(),
            ),
        }
    }

    /// Type and size, never content.
    pub(crate) fn describe(&self) -> String {
        match self {
            Node::Null => "null".into(),
            Node::Bool(value) => value.to_string(),
            Node::Uint(_) | Node::Int(_) => "an integer".into(),
            Node::Float => "a number with a fraction or exponent".into(),
            Node::Wide => "an integer beyond 64 bits".into(),
            Node::Text(text) => format!("text of {} bytes", text.len()),
            Node::Bytes(bytes) => format!("a byte string of {} bytes", bytes.len()),
            Node::List(list) => format!("an array of {}", list.len()),
            Node::Map(map) => format!("an object of {} members", map.len()),
        }
    }
}

/// What the walk has used up, shared by all levels.
#[derive(Default)]
struct Budget {
    values: Cell<u32>,
    exceeded: Cell<bool>,
}

struct Seed<'b> {
    budget: &'b Budget,
    depth: u8,
}

impl Seed<'_> {
    fn deeper<E: Error>(&self) -> Result<Self, E> {
        let values = self.budget.values.get() + 1;
        self.budget.values.set(values);
        if self.depth >= DEPTH_MAX || values > VALUES_MAX {
            self.budget.exceeded.set(true);
            return Err(E::custom(EXCEEDED));
        }
        Ok(Seed {
            budget: self.budget,
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node<'de>;
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Node<'de>, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a boolean, an integer, text, an array or an object")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node<'de>, E> {
        Ok(u64::try_from(value).map_or(Node::Int(value), Node::Uint))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node<'de>, E> {
        Ok(Node::Uint(value))
    }
    fn visit_i128<E>(self, value: i128) -> Result<Node<'de>, E> {
        Ok(i64::try_from(value).map_or(Node::Wide, Node::Int))
    }
    fn visit_u128<E>(self, _: u128) -> Result<Node<'de>, E> {
        Ok(Node::Wide)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Node<'de>, E> {
        Ok(Node::Float)
    }
    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(value)))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(value.to_owned())))
    }
    fn visit_string<E>(self, value: String) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(value)))
    }
    fn visit_bytes<E>(self, value: &[u8]) -> Result<Node<'de>, E> {
        Ok(Node::Bytes(value.to_vec()))
    }
    fn visit_byte_buf<E>(self, value: Vec<u8>) -> Result<Node<'de>, E> {
        Ok(Node::Bytes(value))
    }
    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }
    fn visit_none<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<Node<'de>, D::Error> {
        input.deserialize_any(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Node<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = input.next_element_seed(self.deeper()?)? {
            list.push(node);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Node<'de>, A::Error> {
        let mut map = Vec::with_capacity(16);
        while let Some(key) = input.next_key_seed(KeySeed)? {
            let value = input.next_value_seed(self.deeper()?)?;
            map.push((key, value));
        }
        Ok(Node::Map(map))
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text key")
    }
    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value))
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Seed {
            budget: &Budget::default(),
            depth: 0,
        }
        .deserialize(input)
    }
}

fn refuse(code: ErrorCode, expected: &str, found: String) -> RecordErrors {
    let (expected, hint) = (expected.to_owned(), String::new());
    RecordErrors::one(FieldError {
        pointer: String::new(),
        code,
        expected,
        found,
        hint,
    })
}

fn too_long(len: usize, len_max: usize) -> Option<RecordErrors> {
    (len > len_max).then(|| {
        refuse(
            ErrorCode::TooLong,
            &format!("at most {len_max} bytes"),
            format!("{len} bytes"),
        )
    })
}

const EXCEEDED: &str = "at most 32 levels and 16384 values";

/// Reads one JSON text and nothing behind it.
pub(crate) fn from_json(input: &[u8], len_max: usize) -> Result<Node<'_>, RecordErrors> {
    if let Some(errors) = too_long(input.len(), len_max) {
        return Err(errors);
    }
    let budget = Budget::default();
    let mut reader = serde_json::Deserializer::from_slice(input);
    let read = Seed {
        budget: &budget,
        depth: 0,
    }
    .deserialize(&mut reader);
    match read.and_then(|node| reader.end().map(|()| node)) {
        Ok(node) => Ok(node),
        Err(_) if budget.exceeded.get() => Err(refuse(ErrorCode::TooDeep, EXCEEDED, "more".into())),
        // Only the place: the parser's own words may quote the input.
        Err(error) => {
            let place = format!(
                "something else at line {}, column {}",
                error.line(),
                error.column()
            );
            Err(refuse(
                ErrorCode::Malformed,
                "one JSON object in UTF-8",
                place,
            ))
        }
    }
}

/// Reads one CBOR data item and nothing behind it. Lenient in form, as clients' libraries differ; canonical bytes are
/// what `Record::from_canonical_cbor` requires.
pub(crate) fn from_cbor(input: &[u8], len_max: usize) -> Result<Node<'_>, RecordErrors> {
    if let Some(errors) = too_long(input.len(), len_max) {
        return Err(errors);
    }
    // Definite lengths and shortest heads are what nearly everybody sends, and cost a fifth of the time.
    let mut reader = Reader::new("record", input);
    let strict = reader.node(0, &mut { VALUES_MAX });
    if let (Ok(node), Ok(())) = (strict, reader.end()) {
        return Ok(node);
    }
    let mut rest = input;
    match ciborium::from_reader::<OwnedNode, _>(&mut rest) {
        Ok(OwnedNode(node)) if rest.is_empty() => Ok(node),
        Ok(_) => Err(refuse(
            ErrorCode::Malformed,
            "one CBOR map",
            format!("{} bytes behind it", rest.len()),
        )),
        Err(ciborium::de::Error::Semantic(_, message)) if message == EXCEEDED => {
            Err(refuse(ErrorCode::TooDeep, EXCEEDED, "more".into()))
        }
        Err(_) => {
            let place = format!(
                "something else at or before byte {}",
                input.len() - rest.len()
            );
            Err(refuse(
                ErrorCode::Malformed,
                "one CBOR map with text keys, without tags",
                place,
            ))
        }
    }
}

/// A tree that borrows nothing, as the CBOR reader wants it.
struct OwnedNode(Node<'static>);

impl<'de> Deserialize<'de> for OwnedNode {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Node::deserialize(input).map(|node| OwnedNode(node.into_owned()))
    }
}
