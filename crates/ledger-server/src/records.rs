//! `GET /v1/records/{seq}`: what can be shown of one frame.
//!
//! The daemon holds no key that opens evidence. [`KeylessRecords`] shows what any reader of the
//! files sees; who holds envelope keys gives a [`RecordProvider`] that adds the skeleton.

use crate::frames::{ReadError, Walk, segment_of};
use ledger_format::{Content, Seq};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// One frame, as far as it is shown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordView {
    /// The frame's number.
    pub seq: u64,
    /// `record`, or the name of a control frame's kind.
    pub kind: String,
    /// The writer's clock, RFC 3339.
    pub appended_at: String,
    /// The frame's link, hex.
    pub link: String,
    /// Bytes of the frame.
    pub frame_bytes: u64,
    /// The raw body that is kept apart, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadView>,
    /// Type, ids, relations and states, when the daemon can open envelopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skeleton: Option<serde_json::Value>,
}

/// Where a raw body is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PayloadView {
    /// Its retention class.
    pub class: String,
    /// Bytes as sealed.
    pub sealed_bytes: u64,
}

/// Shows single frames. Asked for synced ones only. Blocks.
pub trait RecordProvider: Send + Sync + 'static {
    /// One frame; none if the ledger has no such frame. `synced` says how many frames may be looked at.
    ///
    /// # Errors
    /// It could not be read.
    fn record(
        &self,
        seq: Seq,
        synced: &(dyn Fn() -> Seq + Send + Sync),
    ) -> Result<Option<RecordView>, ReadError>;
}

/// Frames as anybody sees them, read from the ledger's folder.
#[derive(Clone, Debug)]
pub struct KeylessRecords {
    /// The ledger's folder.
    pub ledger: PathBuf,
}

impl RecordProvider for KeylessRecords {
    fn record(
        &self,
        seq: Seq,
        _synced: &(dyn Fn() -> Seq + Send + Sync),
    ) -> Result<Option<RecordView>, ReadError> {
        match self.look(seq) {
            // The file was cut to its data just then, because its segment closed.
            Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.look(seq)
            }
            other => other,
        }
    }
}

impl KeylessRecords {
    fn look(&self, seq: Seq) -> Result<Option<RecordView>, ReadError> {
        let Some(segment) = segment_of(&self.ledger, seq)? else {
            return Ok(None);
        };
        let mut walk = Walk::open(&segment)?;
        walk.seek(seq)?;
        let frame = walk.next()?;
        let found = frame.prefix.seq;
        let payload = match frame.content {
            Content::Record(record) => record.payload.map(|p| PayloadView {
                class: p.class.to_owned(),
                sealed_bytes: p.length,
            }),
            Content::Control(_) => None,
        };
        let view = RecordView {
            seq: found.0,
            kind: frame.prefix.kind.name().to_owned(),
            appended_at: frame.appended_at.to_rfc3339(),
            link: frame.link.to_hex(),
            frame_bytes: u64::from(frame.prefix.frame_len),
            payload,
            skeleton: None,
        };
        if found == seq {
            Ok(Some(view))
        } else {
            Err(walk.refuse("a frame with another number stands here"))
        }
    }
}
