//! Limits of the format (`ledger-format.md`, section 21), each with its reason there.
//!
//! [`TABLE`] is what `ledger inspect constants` prints and the specification is compared with.

/// Version of the specification.
pub const FORMAT_VERSION: u64 = 1;
/// Below every frame that can be encoded.
pub const FRAME_LEN_MIN: u32 = 64;
/// Bounds what a reader holds; above the greatest record with its envelope.
pub const FRAME_LEN_MAX: u32 = 1 << 20;
/// Bounds a group commit.
pub const WRITE_FRAMES_MAX: u32 = 16_384;
/// Bounds what recovery rewrites.
pub const WRITE_LEN_MAX: u64 = 16 << 20;
/// Canonical encoding of one record.
pub const RECORD_LEN_MAX: usize = 256 << 10;
/// Envelope plaintext.
pub const ENVELOPE_LEN_MAX: usize = 64 << 10;
/// Raw body of one delivery.
pub const PAYLOAD_LEN_MAX: usize = 25 << 20;
/// A signed note with sixteen lines, post-quantum ones included.
pub const NOTE_LEN_MAX: usize = 16 << 10;
/// NAME in genesis.
pub const NAME_LEN_MAX: usize = 200;
/// Segments one erasure frame may name.
pub const ERASURE_SEGMENTS_MAX: usize = 4096;
/// Unused ranges a close may list for one class.
pub const UNUSED_RANGES_MAX: usize = 4096;
/// Smallest segment size that may be configured.
pub const SEGMENT_LEN_MIN: u64 = 1 << 20;
/// Segment size unless configured.
pub const SEGMENT_LEN_DEFAULT: u64 = 128 << 20;
/// Greatest segment size that may be configured.
pub const SEGMENT_LEN_MAX: u64 = 1 << 30;
/// A reader refuses longer `.frames` files.
pub const SEGMENT_FILE_LEN_MAX: u64 = 2 << 30;
/// Frames between two checkpoints.
pub const CHECKPOINT_FRAMES_MAX: u64 = 4096;
/// 9999-12-31T23:59:59.999Z in milliseconds.
pub const TIME_MAX: u64 = 253_402_300_799_999;
/// Grain of a torn write.
pub const SECTOR_LEN: u64 = 512;

// A record, its envelope and the fixed items must fit a frame, a frame a write, a write a segment.
const _: () = assert!(RECORD_LEN_MAX * 2 + ENVELOPE_LEN_MAX * 2 + 4096 < FRAME_LEN_MAX as usize);
const _: () = assert!((FRAME_LEN_MAX as u64) < WRITE_LEN_MAX);
const _: () = assert!(SEGMENT_LEN_MAX + WRITE_LEN_MAX < SEGMENT_FILE_LEN_MAX);
const _: () =
    assert!(SEGMENT_LEN_MIN < SEGMENT_LEN_DEFAULT && SEGMENT_LEN_DEFAULT < SEGMENT_LEN_MAX);
const _: () = assert!(NOTE_LEN_MAX < FRAME_LEN_MAX as usize);

/// Name, value: the constants table of the specification, in its order.
pub const TABLE: [(&str, u64); 20] = [
    ("format_version", FORMAT_VERSION),
    ("suite", crate::SUITE as u64),
    ("frame_len_min", FRAME_LEN_MIN as u64),
    ("frame_len_max", FRAME_LEN_MAX as u64),
    ("write_frames_max", WRITE_FRAMES_MAX as u64),
    ("write_len_max", WRITE_LEN_MAX),
    ("record_len_max", RECORD_LEN_MAX as u64),
    ("envelope_len_max", ENVELOPE_LEN_MAX as u64),
    ("payload_len_max", PAYLOAD_LEN_MAX as u64),
    ("note_len_max", NOTE_LEN_MAX as u64),
    ("name_len_max", NAME_LEN_MAX as u64),
    ("erasure_segments_max", ERASURE_SEGMENTS_MAX as u64),
    ("unused_ranges_max", UNUSED_RANGES_MAX as u64),
    ("segment_len_min", SEGMENT_LEN_MIN),
    ("segment_len_default", SEGMENT_LEN_DEFAULT),
    ("segment_len_max", SEGMENT_LEN_MAX),
    ("segment_file_len_max", SEGMENT_FILE_LEN_MAX),
    ("checkpoint_frames_max", CHECKPOINT_FRAMES_MAX),
    ("time_max", TIME_MAX),
    ("sector_len", SECTOR_LEN),
];
