//! The macros that record types are declared with. A type has its parser, encoder and schema from the same list of
//! members, so they cannot disagree. Not for other crates.

/// An object with a fixed set of members: struct, parser, canonical encoder, JSON, JSON Schema.
/// Members stand in the order of their meaning; the canonical order is computed at compile time. `with check` names a
/// method that notes what is wrong between members.
macro_rules! fields {
    (
        $(#[doc = $doc:expr])*
        $vis:vis struct $name:ident $(($tag_key:literal = $tag:literal))? $(with $check:ident)? {
            $( $(#[doc = $fdoc:expr])* $f:ident : $ty:ty, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
        $vis struct $name {
            $(
                $(#[doc = $fdoc])*
                #[serde(skip_serializing_if = "crate::field::Field::is_absent")]
                $vis $f: $ty,
            )*
        }

        impl $name {
            /// The members that this type has, without the one that names its variant.
            pub(crate) const FIELDS: &'static [&'static str] = &[$(stringify!($f)),*];

            fn encode_members(&self, out: &mut Vec<u8>) {
                #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
                enum Ix { $($f,)* $(#[doc = $tag_key] Tag,)? Len }
                const ORDER: [u8; Ix::Len as usize] =
                    crate::cbor::key_order([$(stringify!($f),)* $($tag_key,)?]);
                let present = 0 $(+ usize::from(!crate::field::Field::is_absent(&self.$f)))*
                    $(+ usize::from(!$tag.is_empty()))?;
                crate::cbor::map(out, present);
                for index in ORDER {
                    $(
                        if index == Ix::$f as u8 {
                            if !crate::field::Field::is_absent(&self.$f) {
                                crate::cbor::text(out, stringify!($f));
                                crate::field::Field::encode(&self.$f, out);
                            }
                            continue;
                        }
                    )*
                    $(
                        if index == Ix::Tag as u8 {
                            crate::cbor::text(out, $tag_key);
                            crate::cbor::text(out, $tag);
                        }
                    )?
                }
            }
        }

        impl crate::field::Field for $name {
            fn decode(node: crate::node::Node<'_>, cx: &mut crate::field::Cx) -> Option<Self> {
                use crate::field::Slot;
                let map = crate::field::entries(node, cx)?;
                $( let mut $f: Slot<$ty> = Slot::Empty; )*
                for (key, node) in map {
                    match key.as_ref() {
                        $( stringify!($f) => $f.read(stringify!($f), node, cx), )*
                        other => cx.unknown(other, Self::FIELDS),
                    }
                }
                $( let $f = $f.finish(stringify!($f), cx); )*
                let value = Self { $( $f: $f?, )* };
                $( value.$check(cx); )?
                Some(value)
            }
            fn encode(&self, out: &mut Vec<u8>) {
                self.encode_members(out);
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut object = crate::schema::ObjectSchema::new(concat!($($doc,)*));
                $( object.tag($tag_key, $tag); )?
                $(
                    let required = <$ty as crate::field::Field>::REQUIRED;
                    object.member::<$ty>(generator, stringify!($f), concat!($($fdoc,)*), required);
                )*
                object.finish()
            }
        }
    };
}

/// A choice between objects, told apart by one member.
macro_rules! tagged {
    (
        $(#[doc = $doc:expr])*
        pub enum $name:ident by $key:literal {
            $( $(#[doc = $vdoc:expr])* $variant:ident($ty:ty) = $tag:literal, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
        #[serde(tag = $key)]
        pub enum $name {
            $( $(#[doc = $vdoc])* #[serde(rename = $tag)] $variant($ty), )*
        }

        impl $name {
            /// The names of the variants.
            pub(crate) const TAGS: &'static [&'static str] = &[$($tag),*];

            /// The name of the variant.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $( Self::$variant(_) => $tag, )* }
            }
        }

        impl crate::field::Field for $name {
            fn decode(node: crate::node::Node<'_>, cx: &mut crate::field::Cx) -> Option<Self> {
                let mut map = crate::field::entries(node, cx)?;
                let tag = crate::field::take_tag(&mut map, $key, Self::TAGS, cx)?;
                let node = crate::node::Node::Map(map);
                match tag.as_str() {
                    $( $tag => crate::field::Field::decode(node, cx).map(Self::$variant), )*
                    _ => None,
                }
            }
            fn encode(&self, out: &mut Vec<u8>) {
                match self { $( Self::$variant(value) => crate::field::Field::encode(value, out), )* }
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let variants = vec![$( generator.subschema_for::<$ty>() ),*];
                crate::schema::one_of(concat!($($doc,)*), variants)
            }
        }
    };
}

/// A closed list of names.
macro_rules! names {
    (
        $(#[doc = $doc:expr])*
        pub enum $name:ident { $( $(#[doc = $vdoc:expr])* $variant:ident = $text:literal, )* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        pub enum $name { $( $(#[doc = $vdoc])* #[serde(rename = $text)] $variant, )* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            const NAMES: &'static [&'static str] = &[$($text),*];

            /// The name, as it stands in records.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text, )* }
            }

            /// The value of a name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $text => Some(Self::$variant), )* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl crate::field::Field for $name {
            fn decode(node: crate::node::Node<'_>, cx: &mut crate::field::Cx) -> Option<Self> {
                match node {
                    crate::node::Node::Text(text) => {
                        let value = Self::from_name(&text);
                        if value.is_none() {
                            cx.unknown_name(&text, Self::NAMES);
                        }
                        value
                    }
                    node => {
                        cx.wrong_type("text", &node);
                        None
                    }
                }
            }
            fn encode(&self, out: &mut Vec<u8>) {
                crate::cbor::text(out, self.as_str());
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let names: &[&str] = Self::NAMES;
                schemars::json_schema!({
                    "type": "string", "description": concat!($($doc,)*).trim(), "enum": names,
                })
            }
        }
    };
}

pub(crate) use {fields, names, tagged};
