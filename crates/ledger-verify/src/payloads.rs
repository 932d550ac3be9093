//! The check of payload files (`ledger-format.md`, sections 13 and 15.5): keyless, after the chain.
//!
//! Reads the frames of segments in which the chain's check found nothing a second time, message by
//! message beside them. No verdict on the chain rests on any of it, and nothing is decrypted.

use crate::chain::Chain;
use crate::code::{Class, Code};
use crate::coverage::{Coverage, Refused};
use crate::files::{SegmentBytes, SegmentFile, Window};
use crate::finding::{Bounded, Finding, Note};
use crate::payload_files::{PayloadFolder, PayloadName, file_name};
use crate::report::PayloadsReport;
use crate::walk::FIRST_FRAME;
use ledger_format::{
    ByteOffset, Close, ClosedPayloads, Frame, HEAD_PREFIX_LEN_MAX, HeadPrefix, Kind,
    PAYLOADS_MAGIC, PayloadRef, ReadAt, SegmentOpen, Seq, UnixMillis, link_in_place,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// Bytes of a message read at a time.
const READ_LEN: usize = 256 << 10;
const MAGIC_LEN: u64 = PAYLOADS_MAGIC.len() as u64;
const LINK_LEN: u64 = 32;

/// What the check gave.
#[derive(Debug, Default)]
pub(crate) struct PayloadOutcome {
    pub(crate) findings: Bounded<Finding>,
    pub(crate) follows: Bounded<Finding>,
    pub(crate) notes: Bounded<Note>,
    pub(crate) report: PayloadsReport,
    /// The payload files that were read.
    pub(crate) read: Vec<PathBuf>,
    /// Payload files that lie beside the frames.
    pub(crate) beside: u64,
}

/// Which segments there are and which of them were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'s> {
    /// Those of the folder.
    pub(crate) listed: &'s [SegmentFile],
    /// Those that were read: the last ones of the folder.
    pub(crate) read: &'s [SegmentFile],
}

/// Checks the payload files of every segment that was judged and found good.
pub(crate) fn check(
    folder: &PayloadFolder,
    chain: &Chain<'_>,
    scope: Scope<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> PayloadOutcome {
    let judged = judged(chain);
    let mut checker = Checker {
        folder,
        chain,
        blind: blind(chain, scope, &judged),
        progress,
        out: PayloadOutcome::default(),
        erased_files: 0,
        buf: vec![0; READ_LEN],
    };
    let mut next = BTreeMap::new();
    for (file, result) in scope.read.iter().zip(&chain.segments) {
        if !judged.contains(&result.first) {
            checker.not_judged();
            continue;
        }
        match checker.segment(file) {
            Ok(seq) => {
                next.insert(file.first, seq);
            }
            Err(error) => {
                let finding = Finding::new(Code::Unreadable, file.first, file.first, ByteOffset(0));
                checker.out.findings.push(finding.saying(error.to_string()));
            }
        }
    }
    checker.strays(scope, &next);
    checker.notes();
    let mut out = checker.out;
    out.report.folder = folder.dir.display().to_string();
    let frames = scope.listed.first().and_then(|f| f.path.parent());
    if frames == Some(&folder.dir) {
        out.beside = folder.present.len() as u64;
    }
    out
}

/// Segments in which the chain's check found no violation and judged everything.
fn judged(chain: &Chain<'_>) -> BTreeSet<Seq> {
    let findings = &chain.total.findings;
    if findings.more > 0 {
        return BTreeSet::new();
    }
    let grave = findings.listed.iter();
    let grave = grave.filter(|f| f.class != Class::Incomplete);
    let named: BTreeSet<u64> = grave.map(|f| f.place.segment.0).collect();
    let good = chain.segments.iter().filter(|s| s.good);
    good.map(|s| s.first)
        .filter(|s| !named.contains(&s.0))
        .collect()
}

/// Before this number something is absent or was not judged in which an erasure may stand.
fn blind(chain: &Chain<'_>, scope: Scope<'_>, judged: &BTreeSet<Seq>) -> Option<Seq> {
    let end = Seq(u64::MAX);
    if chain.total.erased.overflow || chain.segments.len() < scope.read.len() {
        return Some(end);
    }
    let unjudged = chain.segments.iter().map(|s| s.first);
    let unjudged = unjudged.filter(|s| !judged.contains(s)).max();
    let findings = chain.total.findings.listed.iter();
    let absent = findings.filter_map(|f| match f.code {
        Code::SegmentMissing => Some(f.place.segment),
        Code::TornTail | Code::CopiedWhileWritten => Some(end),
        _ => None,
    });
    unjudged.max(absent.max())
}

/// A frame that speaks of payloads.
#[derive(Clone, Copy, Debug)]
struct At {
    segment: Seq,
    seq: Seq,
    offset: u64,
    end: u64,
    time: UnixMillis,
}

impl At {
    fn finding(&self, code: Code) -> Finding {
        Finding::new(code, self.segment, self.seq, ByteOffset(self.offset))
            .of_frame(self.end, self.time)
    }
}

#[derive(Debug)]
enum Source {
    Absent,
    Erased,
    /// Said already, or nothing more can be said.
    Unreadable,
    File(SegmentBytes),
}

/// One class of a segment.
#[derive(Debug)]
struct ClassFile {
    source: Source,
    covered: Coverage,
    /// A frame declares a message in it.
    used: bool,
    /// It does not begin as a payload file.
    misbegun: bool,
    /// Something of it was found missing: what else is missing follows.
    missing: bool,
}

/// What a segment says of its payload files.
#[derive(Debug)]
struct Segment {
    first: Seq,
    next: Seq,
    keys: BTreeSet<String>,
    classes: BTreeMap<String, ClassFile>,
    close: Option<(At, BTreeMap<String, ClosedPayloads>)>,
}

impl Segment {
    fn class<'s>(&'s mut self, class: &str, checker: &mut Checker<'_, '_>) -> &'s mut ClassFile {
        let first = self.first;
        let fresh = || checker.open(first, class);
        self.classes.entry(class.to_owned()).or_insert_with(fresh)
    }
}

struct Checker<'c, 'r> {
    folder: &'c PayloadFolder,
    chain: &'c Chain<'r>,
    blind: Option<Seq>,
    progress: &'c (dyn Fn(u64) + Sync),
    out: PayloadOutcome,
    erased_files: u64,
    buf: Vec<u8>,
}

impl Checker<'_, '_> {
    fn not_judged(&mut self) {
        count(&mut self.out.report.not_judged);
    }

    /// One segment; the seq behind its last frame.
    fn segment(&mut self, file: &SegmentFile) -> io::Result<Seq> {
        let bytes = SegmentBytes::open(&file.path)?;
        let last = self.chain.segments.last().map(|s| s.first) == Some(file.first);
        let end = self.chain.total.end.filter(|_| last);
        let mut window = Window::new(&bytes, end.map_or(bytes.len(), |(end, _)| end.0));
        let mut segment = Segment {
            first: file.first,
            next: file.first,
            keys: BTreeSet::new(),
            classes: BTreeMap::new(),
            close: None,
        };
        let mut at = FIRST_FRAME;
        while at < window.len() {
            let head = window.slice(at, HEAD_PREFIX_LEN_MAX as u64)?;
            let (prefix, head_len) = HeadPrefix::parse(head).map_err(|_| changed())?;
            let lead = if at == FIRST_FRAME { 0 } else { LINK_LEN };
            let len = u64::from(prefix.frame_len);
            let linked = window.slice(at.saturating_sub(lead), lead.saturating_add(len))?;
            let bytes = linked.get(lead as usize..).unwrap_or_default();
            let frame = Frame::parse_rest(bytes, prefix, head_len).map_err(|_| changed())?;
            // The chain's check has read this before; what is believed here must be the same.
            if lead > 0 && link_in_place(linked) != frame.link {
                return Err(changed());
            }
            let place = At {
                segment: file.first,
                seq: prefix.seq,
                offset: at,
                end: at.saturating_add(len),
                time: frame.appended_at,
            };
            self.frame(&mut segment, &frame, place)?;
            segment.next = prefix.seq.next();
            at = place.end;
        }
        self.finish(&mut segment);
        Ok(segment.next)
    }

    fn frame(&mut self, segment: &mut Segment, frame: &Frame<'_>, at: At) -> io::Result<()> {
        if let Some(payload) = frame.record().and_then(|r| r.payload) {
            self.message(segment, &payload, at);
        }
        let Some(control) = frame.control() else {
            return Ok(());
        };
        match frame.prefix.kind {
            Kind::SegmentOpen => {
                let open = SegmentOpen::decode(control.body).map_err(|_| changed())?;
                segment.keys = open.payload_keys.into_keys().collect();
            }
            Kind::SegmentClose => {
                let close = Close::decode(control.body).map_err(|_| changed())?;
                segment.close = Some((at, close.payloads));
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, segment: Seq, class: &str) -> ClassFile {
        let mut file = ClassFile {
            source: Source::Absent,
            covered: Coverage::default(),
            used: false,
            misbegun: false,
            missing: false,
        };
        if self.chain.total.erased.names(segment, class) {
            file.source = Source::Erased;
            count(&mut self.erased_files);
            return file;
        }
        let opened = self.folder.open(segment, class).and_then(|opened| {
            let Some(bytes) = opened else { return Ok(None) };
            let begins = bytes.len().min(MAGIC_LEN) as usize;
            let mut magic = [0; PAYLOADS_MAGIC.len()];
            let magic = magic.get_mut(..begins).unwrap_or_default();
            bytes.read_exact_at(0, magic)?;
            Ok(Some((PAYLOADS_MAGIC.starts_with(magic), bytes)))
        });
        match opened {
            Ok(None) => {}
            Ok(Some((good, bytes))) => {
                file.misbegun = !good;
                file.source = Source::File(bytes);
                count(&mut self.out.report.files);
                self.out.read.push(self.folder.path(segment, class));
            }
            Err(error) => {
                self.unreadable(segment, class, &error.to_string());
                file.source = Source::Unreadable;
            }
        }
        file
    }

    fn unreadable(&mut self, segment: Seq, class: &str, why: &str) {
        let finding = Finding::new(Code::Unreadable, segment, segment, ByteOffset(0));
        let finding = finding.in_file(file_name(segment, class)).saying(why);
        self.out.findings.push(finding);
    }

    /// What a record frame declares: at most one finding.
    fn message(&mut self, segment: &mut Segment, payload: &PayloadRef<'_>, at: At) {
        count(&mut self.out.report.declared);
        let class = payload.class;
        if !segment.keys.contains(class) {
            let detail = format!("the segment has no key for the class {class}");
            let finding = at.finding(Code::PayloadUndeclared).saying(detail);
            self.out.findings.push(finding);
            return;
        }
        let first = segment.first;
        let file = segment.class(class, self);
        file.used = true;
        match file.covered.declare(payload.offset, payload.length) {
            Ok(()) => {}
            Err(Refused::Meets) => {
                let detail = format!("{} is declared already in part", range(first, payload));
                let finding = at.finding(Code::PayloadOverlap).saying(detail);
                self.out.findings.push(finding);
                return;
            }
            Err(Refused::TooMany) if matches!(file.source, Source::Unreadable) => return,
            Err(Refused::TooMany) => {
                file.source = Source::Unreadable;
                let why = "declared in more separate ranges than this program holds";
                return self.unreadable(first, class, why);
            }
        }
        let end = payload.offset.saturating_add(payload.length);
        match &file.source {
            Source::Unreadable => {}
            Source::Erased => count(&mut self.out.report.erased),
            Source::File(bytes) if end <= bytes.len() => match self.hash(bytes, payload) {
                Ok(hash) if hash == *payload.hash => count(&mut self.out.report.intact),
                Ok(hash) => {
                    let finding = at.finding(Code::PayloadAltered);
                    let short = crate::bodies::short;
                    self.out.findings.push(
                        finding
                            .between(short(payload.hash), short(&hash))
                            .saying(range(first, payload)),
                    );
                }
                Err(error) => {
                    file.source = Source::Unreadable;
                    self.unreadable(first, class, &error.to_string());
                }
            },
            Source::Absent | Source::File(_) => {
                let detail = format!("{} is not there", range(first, payload));
                let finding = at.finding(Code::PayloadMissing).saying(detail);
                let again = std::mem::replace(&mut file.missing, true);
                self.missing(finding, again);
            }
        }
    }

    /// Once a file; and where an erasure may stand that was not read, it is none.
    fn missing(&mut self, finding: Finding, again: bool) {
        if again || self.blind > Some(finding.place.segment) {
            self.out.follows.push(finding);
        } else {
            self.out.findings.push(finding);
        }
    }

    fn hash(&mut self, bytes: &SegmentBytes, payload: &PayloadRef<'_>) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        let (mut at, mut left) = (payload.offset, payload.length);
        while left > 0 {
            let want = left.min(READ_LEN as u64);
            let part = self.buf.get_mut(..want as usize).unwrap_or_default();
            bytes.read_exact_at(at, part)?;
            hasher.update(part);
            at = at.saturating_add(want);
            left = left.saturating_sub(want);
            (self.progress)(want);
            let total = &mut self.out.report.bytes;
            *total = total.saturating_add(want);
        }
        Ok(*hasher.finalize().as_bytes())
    }

    /// File by file what only the whole segment shows.
    fn finish(&mut self, segment: &mut Segment) {
        let mut classes: BTreeSet<String> = segment.classes.keys().cloned().collect();
        if let Some((_, closed)) = &segment.close {
            classes.extend(closed.keys().cloned());
        }
        let from: PayloadName = (segment.first, String::new());
        let present = self.folder.present.range(from..);
        let present = present.take_while(|(s, _)| *s == segment.first);
        classes.extend(present.map(|(_, class)| class.clone()));
        for class in classes {
            let close = segment.close.as_ref();
            let closed = close.and_then(|(at, all)| Some((*at, all.get(&class)?.clone())));
            if segment.keys.contains(&class) && (close.is_none() || closed.is_some()) {
                self.file(segment, &class, closed);
            } else {
                let seq = close.map_or(segment.first, |(at, _)| at.seq);
                self.unexpected(segment.first, &class, seq);
            }
        }
    }

    fn unexpected(&mut self, segment: Seq, class: &str, seq: Seq) {
        let present = self.folder.present.contains(&(segment, class.to_owned()));
        if present && !self.chain.total.erased.names(segment, class) {
            let finding = Finding::new(Code::PayloadUndeclared, segment, seq, ByteOffset(0));
            self.out.findings.push(
                finding
                    .in_file(file_name(segment, class))
                    .saying("the chain knows no such payload file"),
            );
        }
    }

    fn file(&mut self, segment: &mut Segment, class: &str, closed: Option<(At, ClosedPayloads)>) {
        let (first, name) = (segment.first, file_name(segment.first, class));
        let file = segment.class(class, self);
        if let Some((at, closed)) = &closed {
            for (offset, length) in &closed.unused {
                if file.covered.meets(*offset, *length) {
                    let end = offset.saturating_add(*length);
                    let detail = format!("{name}, bytes {offset} to {end}: unused and declared");
                    let finding = at.finding(Code::PayloadOverlap).saying(detail);
                    self.out.findings.push(finding);
                }
            }
        }
        let len = match &file.source {
            Source::Erased | Source::Unreadable => return,
            Source::File(bytes) => Some(bytes.len()),
            Source::Absent => None,
        };
        if file.misbegun && (file.used || closed.is_some()) {
            let finding = Finding::new(Code::PayloadAltered, first, first, ByteOffset(0));
            let finding = finding.in_file(name.as_str());
            self.out
                .findings
                .push(finding.saying("it does not begin as a payload file"));
        }
        let Some((at, closed)) = closed else {
            let gaps = file.covered.gaps(MAGIC_LEN, len.unwrap_or(0));
            let bytes = gaps.map(|(start, end)| end.saturating_sub(start));
            let total = &mut self.out.report.undeclared_bytes;
            *total = bytes.fold(*total, u64::saturating_add);
            return;
        };
        if len.is_none_or(|len| len < closed.file_len) && !file.missing {
            let found = len.map_or_else(|| "no file".to_owned(), |len| format!("{len} bytes"));
            let finding = at
                .finding(Code::PayloadMissing)
                .between(format!("{} bytes", closed.file_len), found)
                .saying(name.as_str());
            file.missing = true;
            self.missing(finding, false);
        }
        file.covered.cut(closed.file_len);
        for (offset, length) in &closed.unused {
            file.covered.cover(*offset, *length);
        }
        for (start, end) in file.covered.gaps(MAGIC_LEN, len.unwrap_or(0)) {
            let finding = Finding::new(Code::PayloadUndeclared, first, at.seq, ByteOffset(start));
            let mut finding = finding.in_file(name.as_str());
            finding.end = Some(end);
            let bytes = end.saturating_sub(start);
            self.out
                .findings
                .push(finding.saying(format!("{bytes} bytes that nothing accounts for")));
        }
    }

    /// Payload files under a number that is no segment's.
    fn strays(&mut self, scope: Scope<'_>, next: &BTreeMap<Seq, Seq>) {
        let Some(from) = scope.read.first().map(|f| f.first) else {
            return;
        };
        let partial = scope.read.len() < scope.listed.len();
        let folder = self.folder;
        for (number, class) in &folder.present {
            let before = scope.read.partition_point(|f| f.first <= *number);
            let segment = before.checked_sub(1).and_then(|i| scope.read.get(i));
            let Some(segment) = segment.filter(|_| *number >= from) else {
                // Before the part that was asked for, or before the first segment there is.
                if !partial {
                    self.not_judged();
                }
                continue;
            };
            if segment.first == *number {
                continue;
            }
            let behind = scope.read.get(before);
            match next.get(&segment.first) {
                Some(next) if number < next => self.unexpected(*number, class, *number),
                Some(_) if behind.is_none() && self.blind != Some(Seq(u64::MAX)) => {
                    self.unexpected(*number, class, *number);
                }
                _ => self.not_judged(),
            }
        }
    }

    fn notes(&mut self) {
        let plain = |kind, text| Note {
            kind,
            seq: None,
            time: None,
            text,
        };
        let erased = self.out.report.erased;
        if erased > 0 {
            let text = format!(
                "{erased} payload{} in {} file{} ended by erasure; their digests stay",
                crate::summary::plural(erased),
                self.erased_files,
                crate::summary::plural(self.erased_files)
            );
            self.out.notes.push(plain("payload_erased", text));
        }
        for (segment, class) in self.chain.total.erased.iter() {
            let there = self.folder.still_present(*segment, class);
            if !there.is_empty() {
                let text = format!("{}: erased, and still there", there.join(", "));
                self.out.notes.push(plain("payload_still_present", text));
            }
        }
    }
}

fn count(n: &mut u64) {
    *n = n.saturating_add(1);
}

fn changed() -> io::Error {
    io::Error::other("the file changed while it was being read")
}

fn range(segment: Seq, payload: &PayloadRef<'_>) -> String {
    let end = payload.offset.saturating_add(payload.length);
    let name = file_name(segment, payload.class);
    format!("{name}, bytes {} to {end}", payload.offset)
}
