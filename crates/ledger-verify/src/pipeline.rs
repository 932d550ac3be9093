//! The fast path: chunks of all segments go through a few threads and come back in order.
//!
//! Whoever finishes the chunk that is next in order hands it to the judge. A segment in which
//! anything is irregular is judged again, from its start, by `walk`.

use crate::chain::Chain;
use crate::chunk::{ChunkReport, Piece, check};
use crate::files::SegmentFile;
use crate::judge::{Ended, Irregular, Item, Judge};
use crate::reader::{ChunkReader, Task};
use crate::state::keep_all;
use ledger_format::{ByteOffset, Frame, Link, Seq, WriteNumbers};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Chunks in flight for each thread: bounds memory when one of them is slow.
const IN_FLIGHT: u64 = 3;

/// What became of a chunk.
struct Done {
    segment: usize,
    report: Result<ChunkReport, Irregular>,
    end: Option<u64>,
    offset_end: u64,
}

/// A segment on the fast path.
struct Segment<'r> {
    judge: Judge<'r>,
    next: u64,
    write: WriteNumbers,
    link: Option<Link>,
    end: u64,
}

struct Sink<'c, 'r> {
    chain: &'c mut Chain<'r>,
    files: &'c [SegmentFile],
    to_end: bool,
    segment: Option<Segment<'r>>,
    /// Judged on the slow path already: what still comes in of it is dropped.
    settled: Option<usize>,
    waiting: BTreeMap<u64, Done>,
    next: u64,
}

struct Shared<'c, 'r> {
    reader: Mutex<ChunkReader<'c>>,
    sink: Mutex<Sink<'c, 'r>>,
    moved: Condvar,
    progress: &'c (dyn Fn(u64) + Sync),
    in_flight: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Judges `files` with `threads` threads; `to_end` says that the last of them is the last segment
/// of the ledger. `progress` is told of bytes that are done.
pub(crate) fn run<'r>(
    chain: &mut Chain<'r>,
    files: &[SegmentFile],
    to_end: bool,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) {
    let threads = threads.max(1);
    let shared = Shared {
        reader: Mutex::new(ChunkReader::new(files, to_end)),
        sink: Mutex::new(Sink {
            chain,
            files,
            to_end,
            segment: None,
            settled: None,
            waiting: BTreeMap::new(),
            next: 0,
        }),
        moved: Condvar::new(),
        progress,
        in_flight: IN_FLIGHT.saturating_mul(threads as u64),
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| shared.work());
        }
        shared.work();
    });
}

impl Shared<'_, '_> {
    fn work(&self) {
        let mut buf = Vec::new();
        while let Some(task) = self.take(std::mem::take(&mut buf)) {
            let Task {
                ordinal,
                segment,
                chunk,
                end,
            } = task;
            let rules = lock(&self.sink).chain.rules;
            let (report, offset_end) = match chunk {
                Ok(chunk) => {
                    let report = check(&chunk, rules);
                    let len = chunk.buf.len().saturating_sub(crate::chunk::LEAD) as u64;
                    buf = chunk.buf;
                    (self.progress)(len);
                    (report, chunk.offset.saturating_add(len))
                }
                Err(irregular) => (Err(irregular), 0),
            };
            let done = Done {
                segment,
                report,
                end,
                offset_end,
            };
            let mut sink = lock(&self.sink);
            sink.waiting.insert(ordinal, done);
            sink.drain();
            self.moved.notify_all();
        }
    }

    fn take(&self, buf: Vec<u8>) -> Option<Task> {
        loop {
            let mut reader = lock(&self.reader);
            let mut sink = lock(&self.sink);
            if sink.chain.halted() {
                return None;
            }
            let ahead = reader.handed_out().saturating_sub(sink.next);
            if ahead < self.in_flight {
                drop(sink);
                return reader.next(buf);
            }
            drop(reader);
            sink = self
                .moved
                .wait(sink)
                .unwrap_or_else(PoisonError::into_inner);
            drop(sink);
        }
    }
}

impl Sink<'_, '_> {
    fn drain(&mut self) {
        while let Some(done) = self.waiting.remove(&self.next) {
            self.next = self.next.saturating_add(1);
            self.accept(done);
        }
    }

    fn accept(&mut self, done: Done) {
        if self.chain.halted() || self.settled == Some(done.segment) {
            return;
        }
        let Some(file) = self.files.get(done.segment) else {
            return;
        };
        let mut segment = self
            .segment
            .take()
            .unwrap_or_else(|| Segment::new(self.chain.judge(file.first), file.first));
        let result = done
            .report
            .and_then(|report| segment.accept(report, done.offset_end));
        match (result, done.end) {
            (Ok(()), None) => self.segment = Some(segment),
            (Ok(()), Some(len)) if segment.write.index == 0 => {
                let (judge, ended) = segment.end(len);
                self.chain.commit(judge, ended);
            }
            _ => {
                self.settled = Some(done.segment);
                let last = self.to_end && done.segment.saturating_add(1) == self.files.len();
                self.chain.walk_segment(file, last);
            }
        }
    }
}

impl<'r> Segment<'r> {
    fn new(judge: Judge<'r>, first: Seq) -> Self {
        Self {
            link: judge.start.link,
            judge,
            next: first.0,
            write: WriteNumbers { index: 0, count: 0 },
            end: crate::walk::FIRST_FRAME,
        }
    }

    fn accept(&mut self, report: ChunkReport, offset_end: u64) -> Result<(), Irregular> {
        let (Some((seq, write)), Some((last, last_write, last_link))) = (report.first, report.last)
        else {
            return Ok(());
        };
        let continues = write.index == self.write.index
            && (write.index == 0 || write.count == self.write.count);
        if seq.0 != self.next || !continues {
            return Err(Irregular);
        }
        self.judge.observe(&report.clock, seq);
        for piece in &report.pieces {
            self.piece(piece)?;
        }
        let out = &mut self.judge.out;
        keep_all(&mut out.promises_kept, &report.promises_kept);
        for seq in report.promises_broken {
            out.promises_broken.push(seq);
        }
        self.next = last.next().0;
        self.link = Some(last_link);
        self.write = WriteNumbers {
            index: if last_write.is_last() {
                0
            } else {
                last_write.index.saturating_add(1)
            },
            count: last_write.count,
        };
        self.end = offset_end;
        Ok(())
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), Irregular> {
        let control = match piece {
            Piece::Run(count, range) => return self.judge.run(*count, range),
            Piece::Control(control) => control,
        };
        let first = control.offset == crate::walk::FIRST_FRAME;
        // The chunk took the predecessor from the frame's own body; here the state is known.
        if first && self.link.is_some_and(|l| l != control.predecessor) {
            return Err(Irregular);
        }
        let frame = Frame::parse(&control.bytes).map_err(|_| Irregular)?;
        self.judge.frame(&Item {
            frame,
            offset: control.offset,
            first,
            jump: false,
            predecessor: Some(control.predecessor),
            signed: control.signed,
            sound: true,
        });
        if self.judge.out.halt {
            Err(Irregular)
        } else {
            Ok(())
        }
    }

    fn end(mut self, len: u64) -> (Judge<'r>, Ended) {
        self.judge.out.end = Some((ByteOffset(self.end), Seq(self.next)));
        let ended = Ended {
            len,
            next: Seq(self.next),
            stopped: false,
            jump: false,
            link: self.link,
            computed: None,
        };
        (self.judge, ended)
    }
}
