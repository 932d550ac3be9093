//! How fields are read, checked and written: one trait, and the place where faults are noted.
//! The macros that build record types from it are in `macros`.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::cbor;
use crate::error::{ErrorCode, FieldError, RecordErrors};
use crate::guard::{self, SecretKind};
use crate::limits::ITEMS_MAX;
use crate::node::Node;

/// A step of a JSON Pointer.
#[derive(Clone, Copy)]
enum Step {
    Name(&'static str),
    Index(usize),
}

/// Where the reader is, and what it found wrong so far.
pub(crate) struct Cx {
    path: Vec<Step>,
    errors: RecordErrors,
    /// False when reading what the ledger already holds: a guard that learned a new shape must not hide old evidence.
    guarded: bool,
}

impl Cx {
    pub(crate) fn new(guarded: bool) -> Self {
        Self {
            path: Vec::new(),
            errors: RecordErrors::default(),
            guarded,
        }
    }

    pub(crate) fn guarded(&self) -> bool {
        self.guarded
    }

    pub(crate) fn finish(self) -> Result<(), RecordErrors> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.errors)
        }
    }

    fn pointer(&self, last: Option<&str>) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Name(name) => _ = write!(out, "/{name}"),
                Step::Index(index) => _ = write!(out, "/{index}"),
            }
        }
        if let Some(last) = last {
            _ = write!(out, "/{}", last.replace('~', "~0").replace('/', "~1"));
        }
        out
    }

    pub(crate) fn within<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(Step::Name(name));
        let value = read(self);
        self.path.pop();
        value
    }

    pub(crate) fn fail(&mut self, code: ErrorCode, expected: &str, found: String, hint: &str) {
        self.fail_at(None, code, expected, found, hint);
    }

    pub(crate) fn fail_at(
        &mut self,
        last: Option<&str>,
        code: ErrorCode,
        expected: &str,
        found: String,
        hint: &str,
    ) {
        let pointer = self.pointer(last);
        self.errors.push(FieldError {
            pointer,
            code,
            expected: expected.to_owned(),
            found,
            hint: hint.to_owned(),
        });
    }

    /// Notes that `name` needs a member that is not there.
    pub(crate) fn needs(&mut self, name: &str, hint: &str) {
        self.fail_at(
            Some(name),
            ErrorCode::Inconsistent,
            "a value",
            "nothing".into(),
            hint,
        );
    }

    pub(crate) fn secret(&mut self, kind: SecretKind) {
        self.fail(
            ErrorCode::Secret,
            "no credential",
            kind.describe().to_owned(),
            kind.hint(),
        );
    }

    pub(crate) fn wrong_type(&mut self, expected: &str, node: &Node<'_>) {
        self.fail(ErrorCode::WrongType, expected, node.describe(), "");
    }

    pub(crate) fn duplicate(&mut self, key: &str) {
        self.fail_at(
            Some(key),
            ErrorCode::DuplicateKey,
            "each member once",
            "the member twice".into(),
            "",
        );
    }

    pub(crate) fn missing(&mut self, key: &str) {
        self.fail_at(
            Some(key),
            ErrorCode::Missing,
            "a value",
            "nothing".into(),
            "the member is required",
        );
    }

    /// Names a member that does not exist, unless the name itself may be a secret.
    pub(crate) fn unknown(&mut self, key: &str, known: &[&str]) {
        let hint = format!("members are {}", known.join(", "));
        if showable(key) {
            self.fail_at(
                Some(key),
                ErrorCode::UnknownField,
                "no such member",
                "one".into(),
                &hint,
            );
        } else {
            let found = format!("a member whose name of {} bytes is withheld", key.len());
            self.fail(ErrorCode::UnknownField, "no such member", found, &hint);
        }
    }

    pub(crate) fn unknown_name(&mut self, found: &str, known: &[&str]) {
        let shown = if showable(found) {
            format!("{found:?}")
        } else {
            format!("text of {} bytes", found.len())
        };
        self.fail(
            ErrorCode::UnknownName,
            &format!("one of {}", known.join(", ")),
            shown,
            "",
        );
    }
}

/// Short, of the form of our own names, and no known secret.
fn showable(text: &str) -> bool {
    text.len() <= 32
        && text.bytes().all(|b| {
            b.is_ascii_lowercase() || matches!(b, b'_' | b'-' | b'.') || b.is_ascii_digit()
        })
        && text.bytes().filter(u8::is_ascii_digit).count() <= 4
        && guard::scan(text).is_none()
}

/// A value that a record can hold.
pub(crate) trait Field: Sized {
    /// Whether the member must be there.
    const REQUIRED: bool = true;
    /// Reads and checks; `None` after at least one error was noted in `cx`.
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self>;
    /// The value of an absent member, if it may be absent.
    fn absent() -> Option<Self> {
        None
    }
    /// True when the canonical encoding leaves the member out.
    fn is_absent(&self) -> bool {
        false
    }
    /// Appends the canonical encoding.
    fn encode(&self, out: &mut Vec<u8>);
}

impl<T: Field> Field for Option<T> {
    const REQUIRED: bool = false;
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        match node {
            Node::Null => Some(None),
            node => T::decode(node, cx).map(Some),
        }
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
    fn is_absent(&self) -> bool {
        self.is_none()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

impl<T: Field> Field for Vec<T> {
    const REQUIRED: bool = false;
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        let list = match node {
            Node::List(list) => list,
            node => {
                cx.wrong_type("an array", &node);
                return None;
            }
        };
        if list.len() > ITEMS_MAX {
            let expected = format!("at most {ITEMS_MAX} elements");
            cx.fail(
                ErrorCode::TooMany,
                &expected,
                format!("{} elements", list.len()),
                "",
            );
            return None;
        }
        let (len, mut values) = (list.len(), Vec::with_capacity(list.len()));
        for (index, node) in list.into_iter().enumerate() {
            cx.path.push(Step::Index(index));
            values.extend(T::decode(node, cx));
            cx.path.pop();
        }
        (values.len() == len).then_some(values)
    }
    fn absent() -> Option<Self> {
        Some(Vec::new())
    }
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        cbor::array(out, self.len());
        for value in self {
            value.encode(out);
        }
    }
}

impl<T: Field> Field for Box<T> {
    const REQUIRED: bool = T::REQUIRED;
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        T::decode(node, cx).map(Box::new)
    }
    fn absent() -> Option<Self> {
        T::absent().map(Box::new)
    }
    fn is_absent(&self) -> bool {
        T::is_absent(self)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
}

impl Field for u64 {
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        match node {
            Node::Uint(value) => return Some(value),
            Node::Int(_) | Node::Wide => {
                cx.fail(
                    ErrorCode::OutOfRange,
                    "an integer from 0 to 18446744073709551615",
                    node.describe(),
                    "",
                );
            }
            node => cx.wrong_type("an unsigned integer", &node),
        }
        None
    }
    fn encode(&self, out: &mut Vec<u8>) {
        cbor::uint(out, *self);
    }
}

impl Field for i64 {
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        let value = match node {
            Node::Uint(value) => i64::try_from(value).ok(),
            Node::Int(value) => Some(value),
            Node::Wide => None,
            node => {
                cx.wrong_type("an integer", &node);
                return None;
            }
        };
        if value.is_none() {
            cx.fail(
                ErrorCode::OutOfRange,
                "an integer of 64 bits with sign",
                "a larger one".into(),
                "",
            );
        }
        value
    }
    fn encode(&self, out: &mut Vec<u8>) {
        cbor::int(out, *self);
    }
}

impl Field for bool {
    fn decode(node: Node<'_>, cx: &mut Cx) -> Option<Self> {
        match node {
            Node::Bool(value) => Some(value),
            node => {
                cx.wrong_type("true or false", &node);
                None
            }
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        cbor::boolean(out, *self);
    }
}

/// A member while its object is being read.
pub(crate) enum Slot<T> {
    Empty,
    Bad,
    Value(T),
}

impl<T: Field> Slot<T> {
    pub(crate) fn read(&mut self, name: &'static str, node: Node<'_>, cx: &mut Cx) {
        if matches!(self, Slot::Empty) {
            *self = cx
                .within(name, |cx| T::decode(node, cx))
                .map_or(Slot::Bad, Slot::Value);
        } else {
            cx.duplicate(name);
        }
    }

    pub(crate) fn finish(self, name: &'static str, cx: &mut Cx) -> Option<T> {
        match self {
            Slot::Value(value) => Some(value),
            Slot::Bad => None,
            Slot::Empty => {
                let absent = T::absent();
                if absent.is_none() {
                    cx.missing(name);
                }
                absent
            }
        }
    }
}

pub(crate) type Entries<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

pub(crate) fn entries<'a>(node: Node<'a>, cx: &mut Cx) -> Option<Entries<'a>> {
    match node {
        Node::Map(map) => Some(map),
        node => {
            cx.wrong_type("an object", &node);
            None
        }
    }
}

/// Takes the member that says which variant an object is.
pub(crate) fn take_tag(
    map: &mut Entries<'_>,
    key: &'static str,
    known: &[&str],
    cx: &mut Cx,
) -> Option<String> {
    let Some(at) = map.iter().position(|(name, _)| name == key) else {
        cx.fail_at(
            Some(key),
            ErrorCode::Missing,
            &format!("one of {}", known.join(", ")),
            "nothing".into(),
            "",
        );
        return None;
    };
    let (_, tag) = map.remove(at);
    if map.iter().any(|(name, _)| name == key) {
        cx.duplicate(key);
        return None;
    }
    match tag {
        Node::Text(tag) if known.contains(&tag.as_ref()) => Some(tag.into_owned()),
        Node::Text(tag) => {
            cx.within(key, |cx| cx.unknown_name(&tag, known));
            None
        }
        node => {
            cx.within(key, |cx| cx.wrong_type("text", &node));
            None
        }
    }
}
