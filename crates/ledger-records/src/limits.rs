//! Every limit of a record, with its reason. Not the limits of frames or segments.

/// Greatest length of a record in canonical CBOR, in bytes. A frame of one record stays far below the frame limit.
pub const RECORD_LEN_MAX: usize = 256 * 1024;
/// Greatest length of a record as it arrives, in bytes: JSON may escape every byte as six.
pub const RECORD_INPUT_LEN_MAX: usize = 6 * RECORD_LEN_MAX + 1024;
/// Greatest length of an envelope, in bytes, before padding.
pub const ENVELOPE_LEN_MAX: usize = 64 * 1024;
/// Greatest length of a raw body, in bytes: GitHub, the largest sender known, stops at 25 MiB.
pub const RAW_BODY_LEN_MAX: usize = 25 * 1024 * 1024;
/// Greatest length of a submission as it arrives: the record, and its body in base64.
pub const SUBMISSION_LEN_MAX: usize = RECORD_INPUT_LEN_MAX + RAW_BODY_LEN_MAX.div_ceil(3) * 4 + 64;
/// Greatest nesting of arrays and maps. Records need five.
pub const DEPTH_MAX: u8 = 32;
/// Greatest number of values in one input: bounds memory before any field is known.
pub const VALUES_MAX: u32 = 16 * 1024;
/// Errors collected before the rest is only counted as "more".
pub const ERRORS_MAX: usize = 64;
/// Greatest length of an identifier's value, in bytes.
pub const ID_LEN_MAX: usize = 128;
/// Greatest length of a label, in bytes.
pub const LABEL_LEN_MAX: usize = 256;
/// Greatest length of a route or command template, in bytes.
pub const TEMPLATE_LEN_MAX: usize = 1024;
/// Greatest length of the one field for free text, in bytes: a prompt has no room.
pub const REASON_LEN_MAX: usize = 1024;
/// Greatest length of a rule set's text, in bytes.
pub const RULES_TEXT_LEN_MAX: usize = 64 * 1024;
/// Greatest number of elements of any array of a record.
pub const ITEMS_MAX: usize = 128;
/// Greatest length of an identifier's scope in an envelope: a label, and for kind `other` a name and a slash.
pub const SCOPE_LEN_MAX: usize = LABEL_LEN_MAX + 1 + 64;
/// Greatest length of an identifier's value in an envelope: a business key, two ids with every byte escaped.
pub const IDENTIFIER_LEN_MAX: usize = 2 * 3 * ID_LEN_MAX + 1;

const _: () = assert!(RULES_TEXT_LEN_MAX < RECORD_LEN_MAX);
const _: () = assert!(ENVELOPE_LEN_MAX < RECORD_LEN_MAX);
