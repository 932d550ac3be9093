//! The numbers and hashes that cross function borders, each as a type of its own.

use std::fmt;

/// A frame's sequence number (`ledger-format.md`, section 1): 0 for the ledger's first frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Seq(pub u64);

impl Seq {
    /// The number that stands next; saturates at the end of the number space.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A position in a file, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ByteOffset(pub u64);

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Milliseconds since 1970-01-01T00:00:00Z, leap seconds ignored (section 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// RFC 3339 in UTC with three decimals, as receipts and reports show it.
    ///
    /// Values above the format's limit (year 9999) are shown as that limit.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let capped = self.0.min(crate::limits::TIME_MAX);
        let millis = i64::try_from(capped).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(t) => format!("{t:.3}"),
            Err(_) => format!("{capped} ms"),
        }
    }
}

/// Number of a generation; 0 is the one that genesis made (section 10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The chain value of a frame (section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link(pub [u8; 32]);

impl Link {
    /// The predecessor of the ledger's first frame.
    pub const ZERO: Self = Self([0; 32]);

    /// 64 lower-case hex digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.to_hex())
    }
}

/// Identity of a ledger: derive-key hash of its genesis body (section 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LedgerId(pub [u8; 32]);

impl LedgerId {
    /// The first 16 bytes as 32 lower-case hex digits: the form in origins and state paths.
    #[must_use]
    pub fn short_hex(&self) -> String {
        hex(&self.0[..16])
    }

    /// All 32 bytes in hex.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerId({})", self.to_hex())
    }
}

/// Frame kinds (section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// One client record.
    Record = 1,
    /// Identity of the ledger; seq 0 and nowhere else.
    Genesis = 2,
    /// First frame of a segment (second in segment 0).
    SegmentOpen = 3,
    /// Names the next epoch key.
    SegmentClose = 4,
    /// A signed tree head over all frames before it.
    Checkpoint = 5,
    /// Witnesses' lines for an earlier checkpoint.
    Cosignature = 6,
    /// Payload files whose keys are destroyed.
    Erasure = 7,
    /// A torn tail that was set aside.
    Recovery = 8,
    /// New log and epoch keys.
    Generation = 9,
}

impl Kind {
    /// The kind with this number, if the format has one.
    #[must_use]
    pub const fn from_number(n: u64) -> Option<Self> {
        Some(match n {
            1 => Self::Record,
            2 => Self::Genesis,
            3 => Self::SegmentOpen,
            4 => Self::SegmentClose,
            5 => Self::Checkpoint,
            6 => Self::Cosignature,
            7 => Self::Erasure,
            8 => Self::Recovery,
            9 => Self::Generation,
            _ => return None,
        })
    }

    /// The kind's number on disk.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind's name in the specification's table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Genesis => "genesis",
            Self::SegmentOpen => "segment_open",
            Self::SegmentClose => "segment_close",
            Self::Checkpoint => "checkpoint",
            Self::Cosignature => "cosignature",
            Self::Erasure => "erasure",
            Self::Recovery => "recovery",
            Self::Generation => "generation",
        }
    }

    /// Length of the tag of a control frame of this kind; records have none.
    #[must_use]
    pub const fn tag_len(self) -> usize {
        match self {
            Self::Genesis | Self::SegmentOpen => 64,
            Self::Record => 0,
            _ => 16,
        }
    }

    /// Whether a frame of this kind must be a write of its own (section 6).
    #[must_use]
    pub const fn stands_alone(self) -> bool {
        matches!(
            self,
            Self::Checkpoint | Self::Cosignature | Self::SegmentClose
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which frame of how many this is in the write that brought it (section 6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteNumbers {
    /// Counts from 0.
    pub index: u32,
    /// Frames in the write, at least 1.
    pub count: u32,
}

impl WriteNumbers {
    /// A write of one frame.
    pub const ALONE: Self = Self { index: 0, count: 1 };

    /// Whether this frame is the last of its write.
    #[must_use]
    pub const fn is_last(self) -> bool {
        self.index.saturating_add(1) >= self.count
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(*byte));
    }
    text
}
