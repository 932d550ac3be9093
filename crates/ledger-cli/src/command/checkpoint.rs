//! `ledger checkpoint`: the newest signed checkpoint, out of the chain itself.

use std::path::{Path, PathBuf};

use clap::Args;
use ledger_format::{
    ByteOffset, Checkpoint, Frame, Kind, SegmentOpen, Seq, decode_checkpoint_body,
};

use crate::exit::{Exit, Failure};
use crate::folder::{LedgerFolder, frames_name};
use crate::frames::{FrameReader, walk};
use crate::socket;

/// Print the newest signed checkpoint
///
/// From a folder it is taken from the chain, not from the file `checkpoint` beside it, and its signatures must verify
/// under the keys that its segment names. A daemon is asked for it through any of its sockets. Kept outside, it shows a later auditor that nothing before it was changed. Only
/// `ledger verify` says whether the chain keeps what it promises.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger checkpoint audit > 2026-11-30.ckpt
  ledger checkpoint --socket /run/ledger/build-agent/writer.sock --new > now.ckpt
  ledger verify audit --trust trust-line.txt --checkpoint 2026-11-30.ckpt

EXIT CODES
  0 printed   1 it does not verify   2 the segments present hold none   3 it could not run
  64 the command line was wrong")]
pub(crate) struct CheckpointArgs {
    /// The ledger, or a copy of it
    #[arg(required_unless_present = "socket", conflicts_with = "socket")]
    dir: Option<PathBuf>,

    /// A socket of the daemon that serves it
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Cut one over everything that is in the ledger now
    #[arg(long, requires = "socket", conflicts_with = "dir")]
    new: bool,
}

/// The last checkpoint frame of a segment.
struct Newest {
    seq: Seq,
    offset: ByteOffset,
    body: Vec<u8>,
}

pub(crate) fn run(args: &CheckpointArgs) -> anyhow::Result<Exit> {
    match (&args.socket, &args.dir) {
        (Some(socket), _) => of_daemon(socket, args.new),
        (None, dir) => of_folder(dir.as_deref().unwrap_or("".as_ref())),
    }
}

fn of_daemon(socket: &Path, new: bool) -> anyhow::Result<Exit> {
    let note = socket::call(socket, !new, |client| async move {
        if new {
            client.cut_checkpoint().await
        } else {
            client.checkpoint().await
        }
    })?;
    let note = note.map_err(|error| socket::failure(socket, &error))?;
    Checkpoint::parse(note.as_bytes())
        .map_err(|e| Failure::could_not_run(format!("the daemon gave no checkpoint: {e}")))?;
    crate::print(&note)?;
    Ok(Exit::Done)
}

fn of_folder(dir: &Path) -> anyhow::Result<Exit> {
    let folder = LedgerFolder::open(dir)?;
    for first_seq in folder.segments().iter().rev() {
        let mut reader = FrameReader::new(folder.frames(*first_seq)?);
        let (mut newest, mut open) = (None, None);
        walk(&mut reader, |offset, frame| {
            look(offset, frame, &mut newest, &mut open);
            Ok(true)
        })?;
        if let Some(newest) = newest {
            let place = format!(
                "frame {}, {} byte {}",
                newest.seq,
                frames_name(*first_seq),
                newest.offset
            );
            let note = check(&newest, open.as_ref()).map_err(|what| {
                Failure::new(Exit::Refused, format!("{place}: {what}")).hint(format!(
                    "`ledger verify {}` gives the whole verdict",
                    dir.display()
                ))
            })?;
            crate::print(&note)?;
            return Ok(Exit::Done);
        }
    }
    Err(Failure::new(Exit::Incomplete, "the segments present hold no checkpoint").into())
}

fn look(
    offset: ByteOffset,
    frame: &Frame<'_>,
    newest: &mut Option<Newest>,
    open: &mut Option<SegmentOpen>,
) {
    match (frame.prefix.kind, frame.control()) {
        (Kind::Checkpoint, Some(control)) => {
            *newest = Some(Newest {
                seq: frame.prefix.seq,
                offset,
                body: control.body.to_vec(),
            });
        }
        (Kind::SegmentOpen, Some(control)) => *open = SegmentOpen::decode(control.body).ok(),
        _ => {}
    }
}

/// The note, if both signatures are by the keys that segment_open names.
fn check(newest: &Newest, open: Option<&SegmentOpen>) -> Result<String, String> {
    let note = decode_checkpoint_body(&newest.body).map_err(|e| e.to_string())?;
    let checkpoint = Checkpoint::parse(note).map_err(|e| e.to_string())?;
    let open = open.ok_or("its segment names no keys")?;
    let origin = &checkpoint.origin;
    if checkpoint.size != newest.seq.0
        || !origin.names(&open.ledger_id)
        || origin.generation() != open.generation
    {
        return Err(
            "the checkpoint has another size or origin than its place in the chain".to_owned(),
        );
    }
    let (log, epoch) = (
        origin.log_verifier(open.log_key),
        origin.epoch_verifier(open.epoch_key),
    );
    checkpoint
        .verify_in_chain(&log, &epoch)
        .map_err(|e| e.to_string())?;
    String::from_utf8(note.to_vec()).map_err(|e| e.to_string())
}
