//! The codes of findings (`ledger-format.md`, section 15) and what each means offline.
//!
//! Here is only the vocabulary. Who finds what is in `judge`, `walk` and `anchors`.

use serde::{Serialize, Serializer};
use std::fmt;

/// How grave a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Something was changed after it was written, or never belonged here.
    Violation,
    /// What is there does not reach as far as it should.
    Incomplete,
    /// The bytes cannot be judged, by this program or at all.
    CouldNotJudge,
}

macro_rules! codes {
    ($($(#[doc = $doc:expr])+ $variant:ident = $name:literal, $class:ident, $text:literal;)+) => {
        /// What was found. The names are those of the specification's table.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code as reports print it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// How grave it is.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)+ }
            }

            /// What it means, what usually causes it, what to do: plain text of a few sentences.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

codes! {
    /// The file does not begin as a segment.
    BadMagic = "bad_magic", Violation, "The file has the name of a segment but does not begin with the words that every segment begins with. Usual causes: another file under that name, a copy that wrote zeros, an edited first block. Fetch the file again from another copy and compare.";
    /// A later version of the format.
    UnknownFormat = "unknown_format", CouldNotJudge, "The file says it is written in another version of the format than this program knows, so nothing in it was judged. Usual cause: the ledger was upgraded. Use a newer ledger-verify. If the ledger was never upgraded, treat it as a change of the first 17 bytes.";
    /// A later suite of algorithms.
    UnknownSuite = "unknown_suite", CouldNotJudge, "The segment says that it uses other algorithms than this program knows. What stands before it was judged, nothing behind it. Use a newer ledger-verify.";
    /// A file that cannot be read.
    Unreadable = "unreadable", CouldNotJudge, "The file could not be read: it is no regular file, longer than the format allows, or the disk answered with an error. Nothing in it was judged. Copy the ledger again to a healthy disk.";
    /// No frame can be read here.
    FrameUnreadable = "frame_unreadable", Violation, "Where a frame should begin there is none: its first bytes do not fit their own check. Usual causes: an edit, bytes inserted or removed, a bad disk block. The report goes on at the next intact frame. Compare with another copy (--compare).";
    /// A frame runs past the end of the file.
    FrameCut = "frame_cut", Violation, "The last frame is longer than what is left of the file, in a place where no unfinished write can be. Usual causes: a truncated copy of a closed segment, or a cut. Fetch the file again; if all copies agree, the end was removed.";
    /// A good head, bad items.
    FrameMalformed = "frame_malformed", Violation, "The head of the frame is intact, but its items are not what the format allows. Usual causes: an edit or a bad disk block inside this frame. Compare with another copy.";
    /// Frames are absent between two others.
    FramesMissing = "frames_missing", Violation, "The frame found here has a later number than the one that must follow: frames were removed, or a segment lost its end. Compare with another copy or with append receipts.";
    /// A frame with an earlier number.
    FrameRepeated = "frame_repeated", Violation, "A frame whose number has already been passed stands here: a frame was copied, moved or replayed. Compare with another copy.";
    /// A write is not whole.
    WriteBroken = "write_broken", Violation, "The frames of one write do not count through, or a frame shares a write that must stand alone. Usual cause: frames removed or inserted, or a writer that does not follow the format.";
    /// The link does not check.
    FrameAltered = "frame_altered", Violation, "The chain value of this frame does not fit its bytes and its predecessor: this frame was altered after it was written, or the one before it was altered and its chain value recomputed. Keep this copy, compare with another (--compare).";
    /// Zeros behind a closed segment.
    TrailingBytes = "trailing_bytes", Violation, "Zero bytes follow the data of a segment that is not the last. The writer cuts a segment to its data when it closes. Usual causes: a copy program that rounds sizes up, or a file put there by hand.";
    /// A control body does not decode.
    BodyMalformed = "body_malformed", Violation, "The clear text of a control frame is not what the format prescribes for its kind. Usual causes: an edit, or a writer that does not follow the format.";
    /// A kind where it may not stand.
    SegmentOrder = "segment_order", Violation, "A frame of this kind may not stand here: genesis and segment_open only at the start, only one checkpoint behind segment_close. Usual causes: frames moved, or a writer that does not follow the format.";
    /// The file has another segment's name.
    SegmentName = "segment_name", Violation, "The first frame is not the one that the file's name promises: files were renamed or swapped. Compare names with another copy.";
    /// A segment lacks its end.
    SegmentUnclosed = "segment_unclosed", Violation, "This segment is not the last, yet it does not end with its closing checkpoint, and the next one does not declare a new generation. Usual causes: the end of the segment was removed, or a later segment was put behind another copy.";
    /// The genesis signature fails.
    GenesisSignature = "genesis_signature", Violation, "The first frame is not signed by the log key it names. The ledger's identity was altered or made by somebody else.";
    /// The segment_open signature fails.
    OpenSignature = "open_signature", Violation, "The opening frame of the segment is not signed by the epoch key it names: it was altered, or made without the key.";
    /// segment_open does not continue.
    HandoverBroken = "handover_broken", Violation, "The opening frame of the segment does not continue the segment before: another key, identity, checkpoint or chain value. Usual causes: a segment of another ledger or of an older copy, or a forged segment.";
    /// A generation frame contradicts the format.
    GenerationBroken = "generation_broken", Violation, "A frame that declares new keys contradicts the chain: its number, its keys or the state it continues are not right.";
    /// The note does not parse.
    CheckpointMalformed = "checkpoint_malformed", Violation, "A checkpoint in the chain is no checkpoint of this ledger at this place: its text does not parse, or names another size or ledger.";
    /// The root is not the tree's.
    CheckpointRoot = "checkpoint_root", Violation, "The signed root is not the one that the frames before it give: some frame before was exchanged, or the checkpoint belongs to another history.";
    /// A signature fails.
    CheckpointSignature = "checkpoint_signature", Violation, "The checkpoint is not signed by both keys of its segment. Usual causes: an edited checkpoint, or one signed with a stolen or retired key.";
    /// Whole segments are absent.
    SegmentMissing = "segment_missing", Incomplete, "Whole segments are absent before this one. Usual cause: an incomplete copy. Fetch the missing files; they are named by their first frame.";
    /// A write that was never completed.
    TornTail = "torn_tail", Incomplete, "The last write was never completed, and nothing in it was acknowledged. Usual causes: a power cut, a crash, or a copy made while the ledger was writing. A later checkpoint or receipts settle whether anything is absent.";
    /// A copy of a live file.
    CopiedWhileWritten = "copied_while_written", Incomplete, "The last segment has a hole and later writes behind it, as a file looks that was copied while the ledger was writing to it. Copy again with `ledger snapshot`, or check against a later checkpoint.";
    /// New keys that the pinned key did not announce.
    GenerationUncovered = "generation_uncovered", Incomplete, "From here on the ledger uses new keys that the key you trust did not sign for. Everything before is judged by your key. Ask the operator for the new trust line and for the reason, by a road that does not pass the ledger's host.";
    /// Evidence was set aside by the operator.
    EvidenceSetAside = "evidence_set_aside", Incomplete, "The operator set damaged frames aside and went on. The bytes are in the folder recovered/ of the ledger's host. Ask for them and for the reason.";
    /// The newest checkpoint is too old.
    Stale = "stale", Incomplete, "The newest checkpoint is older than the limit you set with --max-age. Usual causes: an old copy, or a stopped writer. Fetch a newer copy; if there is none, ask why.";
    /// No segment in the folder.
    NoSegments = "no_segments", CouldNotJudge, "The folder holds no segment: no file named by 20 digits and .frames. Name the ledger's folder, or its folder segments.";
    /// Another ledger.
    TrustMismatch = "trust_mismatch", Violation, "The chain is not the ledger that the trust line names: another identity or another key. Usual causes: the wrong folder, the wrong trust line, a trust line of a later generation, or a forged ledger.";
    /// Shorter than a known checkpoint.
    RolledBack = "rolled_back", Violation, "You hold a checkpoint with more frames than this copy has: the copy was cut or rolled back below what was once signed, or it is older than your checkpoint.";
    /// Another history than a known checkpoint.
    CheckpointAbsent = "checkpoint_absent", Violation, "You hold a signed checkpoint whose root this chain does not have at that size: there are two histories. Keep both; somebody with the keys signed twice.";
    /// An outside checkpoint is not signed by the log key.
    AnchorSignature = "anchor_signature", Violation, "The checkpoint you gave is not signed by the log key of this chain in the generation it names. Usual causes: a checkpoint of another ledger, an altered file, or a forged ledger.";
    /// A receipt's frame is absent.
    ReceiptAbsent = "receipt_absent", Violation, "You hold a receipt for a frame behind the end of this copy: an acknowledged record is missing, or the copy is older than the receipt.";
    /// A receipt's frame is another.
    ReceiptMismatch = "receipt_mismatch", Violation, "The frame with the receipt's number is not the one that was promised, or the receipt is another ledger's.";
    /// A declared message is not there.
    PayloadMissing = "payload_missing", Violation, "A frame declares a raw body that is not there: its payload file is absent or too short, and no erasure in the chain names that class and segment. Usual causes: a copy without its payload files (say where they lie: --payloads DIR2), a file deleted or cut by hand, an erasure that was never recorded. The frame and the digest in it stay good.";
    /// A message has other bytes.
    PayloadAltered = "payload_altered", Violation, "The bytes of a payload file are not those whose hash stands in the frame, or the file does not begin as a payload file: they were altered after they were written, or the file is another one's. Usual causes: an edit, a bad disk block, files swapped. Compare with another copy.";
    /// Bytes or a file that nobody declares.
    PayloadUndeclared = "payload_undeclared", Violation, "A payload file holds bytes that neither a frame nor the segment's close accounts for, lies under a name that the chain does not know, or a frame names a class that its segment has no key for. Usual causes: bytes or files put there by hand, a file that grew after its segment closed, the .frames file of a newer segment left out of the copy.";
    /// Two ranges meet.
    PayloadOverlap = "payload_overlap", Violation, "Two frames declare the same bytes of a payload file, or the segment's close calls bytes unused that a frame declares. A writer that follows the format never does that. The message of the later frame was not judged.";
}

impl Code {
    /// Whether it is about payload files: no verdict on the chain rests on it.
    #[must_use]
    pub const fn is_of_payloads(self) -> bool {
        matches!(
            self,
            Self::PayloadMissing
                | Self::PayloadAltered
                | Self::PayloadUndeclared
                | Self::PayloadOverlap
        )
    }

    /// The code with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// Words that are not findings but stand in reports: `explain` knows them too.
pub const WORDS: &[(&str, &str)] = &[
    (
        "verified",
        "Nothing was changed, removed, inserted or reordered up to the newest checkpoint, and the key or checkpoint that you gave from outside the copy says so. It does not say that what was recorded is true or complete.",
    ),
    (
        "violation",
        "The files are not as they were written. The findings say where. Keep the copy as it is and compare with others.",
    ),
    (
        "incomplete",
        "No sign of change, but the copy does not reach as far as it should: an unfinished write, absent segments, new keys you have not been told of, or a checkpoint that is too old.",
    ),
    (
        "could_not_judge",
        "Something could not be read or is written in a version that this program does not know. Nothing is said about it.",
    ),
    (
        "self_consistent_only",
        "The files agree with each other, but you gave nothing from outside the copy: whoever can write the folder could have made such a set. Ask the operator for the trust line by phone or from the contract.",
    ),
    (
        "quick_check_passed",
        "Heads, borders and checkpoint signatures were looked at; most frames were not hashed. Run without --quick for a verification.",
    ),
    (
        "recovery",
        "A note: after a crash the writer set the bytes of an unfinished write aside. They stay in recovered/ on the ledger's host. Nothing acknowledged is ever among them.",
    ),
    (
        "erasure",
        "A note: the payload files of a retention class and their key were deleted by rule. Their digests stay in the chain. It attests only that this copy was deleted.",
    ),
    (
        "payload_erased",
        "A note: frames declare raw bodies whose files and keys were ended by an erasure in the chain. Nothing is said about their bytes; their digests stay in the frames. It attests only that this copy was deleted.",
    ),
    (
        "payload_still_present",
        "A note: an erasure in the chain names this file, and it is still there. Usual causes: a copy made before the deletion, a backup that was put back, a crash between the erasure and the deletion (opening the ledger repeats it).",
    ),
    (
        "clock_back",
        "A note: the writer's clock went back. Order is by frame number, so nothing is doubtful; times around the step may be.",
    ),
    (
        "generation",
        "A note: the ledger went on under new keys. A planned one is announced under the old key. Any other needs a new trust line.",
    ),
    (
        "cosignature",
        "A note: lines of witnesses stand in the chain. They were not checked: no witness key was given.",
    ),
    (
        "not_compared",
        "A note: a checkpoint or receipt of yours falls into a part that could not be read or was not read, so it was not compared.",
    ),
    (
        "tail",
        "A note: frames behind the newest checkpoint are chained but not yet signed. They could be cut off unseen, unless you hold a receipt.",
    ),
];

/// The offline explanation of a code, verdict or note.
#[must_use]
pub fn explanation(word: &str) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase().replace(['-', ' '], "_");
    Code::from_name(&word)
        .map(Code::explanation)
        .or_else(|| WORDS.iter().find(|(w, _)| *w == word).map(|(_, t)| *t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_explains_itself_and_says_what_to_do() {
        for code in Code::ALL {
            assert_eq!(Code::from_name(code.name()), Some(*code));
            assert!(code.explanation().len() > 60, "{code}");
            assert!(explanation(&code.name().to_uppercase().replace('_', "-")).is_some());
        }
        assert!(WORDS.iter().all(|(_, t)| t.len() > 60));
        assert_eq!(explanation("no such word"), None);
    }

    #[test]
    fn codes_are_those_of_the_specification() {
        let specification = include_str!("../../../ledger-format.md");
        for code in Code::ALL.iter().filter(|c| **c != Code::Unreadable) {
            assert!(specification.contains(&format!("`{code}`")), "{code}");
        }
    }
}
