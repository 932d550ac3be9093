//! Frames as read: strict, zero-copy, not yet believed (`ledger-format.md`, section 3).
//!
//! A [`Frame`] has a good head and a good structure. Whether it belongs to the chain is for the
//! caller to check with [`Frame::compute_link`]; whether its sections open, for the vault.

use crate::cbor::{CborError, Reader};
use crate::context::{Context, derive_parts};
use crate::head::{HeadError, HeadPrefix};
use crate::limits::TIME_MAX;
use crate::types::{Kind, Link, UnixMillis};
use thiserror::Error;

/// Bytes of the last item of every frame: `58 20` and the link.
pub(crate) const LINK_ITEM_LEN: usize = 34;
/// The shortest sealed section: an AEAD tag.
const SEALED_LEN_MIN: usize = 16;

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// The head prefix fails.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The slice has another length than the head says.
    #[error("the frame's items do not end where its head says")]
    Length,
    /// An item is not what must stand there.
    #[error("item {item:?}: {source}")]
    Item {
        /// Name of the item in the specification's table.
        item: &'static str,
        /// What is wrong with it.
        source: CborError,
    },
}

/// Where the sealed raw body of a delivery lies (section 13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRef<'a> {
    /// Retention class.
    pub class: &'a str,
    /// Offset of the message in the class' payload file.
    pub offset: u64,
    /// Length of the message.
    pub length: u64,
    /// Salt of the message.
    pub salt: &'a [u8; 16],
    /// BLAKE3 of the message's bytes.
    pub hash: &'a [u8; 32],
}

/// Whether a text is a retention class: `[a-z0-9]{1,16}`, not a name that key files use.
pub(crate) fn is_class(text: &str) -> bool {
    (1..=16).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && text != "body"
        && text != "envelope"
}

/// Sealed sections of a record frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordContent<'a> {
    /// Salt of body and envelope.
    pub salt: &'a [u8; 16],
    /// Commitment of the body's R (section 11.2).
    pub commitment: &'a [u8; 32],
    /// Sealed body.
    pub body: &'a [u8],
    /// Raw body kept out of the chain, if any.
    pub payload: Option<PayloadRef<'a>>,
    /// Sealed envelope.
    pub envelope: &'a [u8],
}

/// Clear body and tag of a control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlContent<'a> {
    /// One CBOR map, not decoded yet (section 7).
    pub body: &'a [u8],
    /// 16 bytes, or a 64-byte signature (section 11.5).
    pub tag: &'a [u8],
}

/// What stands between the head prefix and the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// A client record.
    Record(RecordContent<'a>),
    /// Everything else.
    Control(ControlContent<'a>),
}

/// A frame with good head and structure, over the bytes as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Length, number, kind, place in the write.
    pub prefix: HeadPrefix,
    /// The writer's clock.
    pub appended_at: UnixMillis,
    /// The kind's items.
    pub content: Content<'a>,
    /// The link as stored.
    pub link: Link,
    bytes: &'a [u8],
    authenticated_len: usize,
}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of `bytes`, which may go on behind it.
    ///
    /// # Errors
    /// [`FrameError`]; `Head(Short)` also when the frame runs past the end of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (prefix, at) = HeadPrefix::parse(bytes)?;
        let bytes = bytes
            .get(..prefix.frame_len as usize)
            .ok_or(FrameError::Head(HeadError::Short))?;
        Self::parse_rest(bytes, prefix, at)
    }

    /// Reads the items behind a head prefix of `prefix_len` bytes; `bytes` is exactly the frame.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse_rest(
        bytes: &'a [u8],
        prefix: HeadPrefix,
        prefix_len: usize,
    ) -> Result<Self, FrameError> {
        let rest = bytes.get(prefix_len..).ok_or(FrameError::Length)?;
        let mut r = Reader::new(rest);
        let appended_at = UnixMillis(item("appended_at", r.uint())?);
        if appended_at.0 > TIME_MAX {
            return Err(FrameError::Item {
                item: "appended_at",
                source: CborError::Bounds { what: "time" },
            });
        }
        let (content, sealed_until) = if prefix.kind == Kind::Record {
            record_items(&mut r)?
        } else {
            control_items(&mut r, prefix.kind)?
        };
        let link = Link(*item("link", r.array_bytes::<32>())?);
        if !r.is_at_end() {
            return Err(FrameError::Length);
        }
        let authenticated_len = prefix_len + sealed_until;
        Ok(Self {
            prefix,
            appended_at,
            content,
            link,
            bytes,
            authenticated_len,
        })
    }

    /// The frame's bytes as read.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes under the envelope's associated data or the tag: up to that item (section 11).
    #[must_use]
    pub fn authenticated_bytes(&self) -> &'a [u8] {
        self.bytes.get(..self.authenticated_len).unwrap_or_default()
    }

    /// The link that the predecessor and this frame's bytes give (section 5).
    #[must_use]
    pub fn compute_link(&self, predecessor: &Link) -> Link {
        link_of(predecessor, self.bytes)
    }

    /// Whether the tag is this key's Ed25519 signature (section 11.5): of the log key for genesis
    /// (context [`Context::GenesisSignature`]), of the epoch key for segment_open
    /// ([`Context::OpenSignature`]).
    #[must_use]
    pub fn tag_signed_by(
        &self,
        context: Context,
        predecessor: &Link,
        public_key: &[u8; 32],
    ) -> bool {
        let Some(signature) = self
            .control()
            .and_then(|c| <&[u8; 64]>::try_from(c.tag).ok())
        else {
            return false;
        };
        let message = derive_parts(
            context,
            &[&[crate::SUITE], &predecessor.0, self.authenticated_bytes()],
        );
        crate::note::verify_signature(public_key, &message, signature)
    }

    /// Control body and tag, if this is a control frame.
    #[must_use]
    pub const fn control(&self) -> Option<ControlContent<'a>> {
        match self.content {
            Content::Control(c) => Some(c),
            Content::Record(_) => None,
        }
    }

    /// Sections, if this is a record frame.
    #[must_use]
    pub const fn record(&self) -> Option<RecordContent<'a>> {
        match self.content {
            Content::Record(c) => Some(c),
            Content::Control(_) => None,
        }
    }
}

/// The link of a frame that lies directly behind its predecessor's link, in one stroke: what
/// checking a file in order needs (section 5).
///
/// `bytes` is the 32 bytes of the predecessor's link and the whole frame. Shorter input gives the
/// link of nothing.
#[must_use]
pub fn link_in_place(bytes: &[u8]) -> Link {
    let linked = bytes
        .get(..bytes.len().saturating_sub(LINK_ITEM_LEN))
        .unwrap_or_default();
    Link(crate::context::derive(Context::Link, linked))
}

/// The link of the frame `bytes` (its own link item included, but not used).
pub(crate) fn link_of(predecessor: &Link, bytes: &[u8]) -> Link {
    let linked = bytes
        .get(..bytes.len().saturating_sub(LINK_ITEM_LEN))
        .unwrap_or_default();
    Link(derive_parts(Context::Link, &[&predecessor.0, linked]))
}

fn item<T>(item: &'static str, result: Result<T, CborError>) -> Result<T, FrameError> {
    result.map_err(|source| FrameError::Item { item, source })
}

fn sealed<'a>(name: &'static str, r: &mut Reader<'a>) -> Result<&'a [u8], FrameError> {
    let bytes = item(name, r.bytes())?;
    if bytes.len() < SEALED_LEN_MIN {
        let source = CborError::Bounds {
            what: "length of a sealed section",
        };
        return Err(FrameError::Item { item: name, source });
    }
    Ok(bytes)
}

fn record_items<'a>(r: &mut Reader<'a>) -> Result<(Content<'a>, usize), FrameError> {
    let salt = item("salt", r.array_bytes())?;
    let commitment = item("commitment", r.array_bytes())?;
    let body = sealed("body", r)?;
    let payload = if r.take_null() {
        None
    } else {
        Some(payload_items(r)?)
    };
    let authenticated = r.position();
    let envelope = sealed("envelope", r)?;
    Ok((
        Content::Record(RecordContent {
            salt,
            commitment,
            body,
            payload,
            envelope,
        }),
        authenticated,
    ))
}

fn payload_items<'a>(r: &mut Reader<'a>) -> Result<PayloadRef<'a>, FrameError> {
    let field = |result| item("payload", result);
    field(r.array_of(5))?;
    let class = item("payload", r.text())?;
    let offset = item("payload", r.uint())?;
    let length = item("payload", r.uint())?;
    let salt = item("payload", r.array_bytes())?;
    let hash = item("payload", r.array_bytes())?;
    let in_bounds = is_class(class)
        && offset >= crate::PAYLOADS_MAGIC.len() as u64
        && length >= SEALED_LEN_MIN as u64
        && offset.checked_add(length).is_some();
    if !in_bounds {
        return field(Err(CborError::Bounds {
            what: "class, offset or length",
        }))
        .map(|()| PayloadRef {
            class,
            offset,
            length,
            salt,
            hash,
        });
    }
    Ok(PayloadRef {
        class,
        offset,
        length,
        salt,
        hash,
    })
}

fn control_items<'a>(r: &mut Reader<'a>, kind: Kind) -> Result<(Content<'a>, usize), FrameError> {
    let body = item("body", r.bytes())?;
    let authenticated = r.position();
    let tag = item("tag", r.bytes())?;
    if tag.len() != kind.tag_len() {
        return item(
            "tag",
            Err(CborError::Bounds {
                what: "length of the tag",
            }),
        );
    }
    Ok((
        Content::Control(ControlContent { body, tag }),
        authenticated,
    ))
}
