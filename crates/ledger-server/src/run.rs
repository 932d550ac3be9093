//! The daemon as a process: opens the ledger, serves until a signal, closes.

use crate::appender::Appender as _;
use crate::config::{Config, LogFormat};
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::places::{RuntimeFolderError, listeners_or_default, runtime_folder};
use crate::server::{Parts, Providers, start};
use crate::socket::SocketError;
use crate::status::Facts;
use crate::system::{handed_over, stop_signal, tell_ready, tell_stopping};
use ledger_writer::{OpenError, Opened};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;

/// What `ledger serve` needs to know.
#[derive(Debug)]
pub struct Options {
    /// The ledger's folder.
    pub ledger: PathBuf,
    /// Below which folder its state lies.
    pub state_root: PathBuf,
    /// The configuration.
    pub config: Config,
}

/// Why the daemon ended other than by a stop that went well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The ledger was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No folder for the default sockets.
    #[error(transparent)]
    RuntimeFolder(#[from] RuntimeFolderError),
    /// A socket was not made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The runtime or the signals failed.
    #[error("the process could not be set up: {0}")]
    System(#[from] std::io::Error),
    /// The ledger was not closed. Nothing is lost: the next start recovers.
    #[error("the ledger could not be closed, the next start will recover it: {0}")]
    Close(String),
}

/// Exit codes of `ledger serve`, as documented. 0 is a graceful stop; 64 is a wrong command line.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (
        0,
        "stopped by SIGTERM or SIGINT: drained, the segment closed and signed",
    ),
    (
        1,
        "the ledger was refused at opening: damage, a roll-back, a wrong key. Starting again does not help",
    ),
    (
        2,
        "stopped, but the segment could not be closed; the next start recovers it",
    ),
    (
        3,
        "could not run: the configuration, a socket, the state folder, the disk",
    ),
    (64, "the command line was wrong"),
];

impl RunError {
    /// The exit code, one of [`EXIT_CODES`].
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Open(
                OpenError::Damaged { .. }
                | OpenError::FloorMissing(_)
                | OpenError::FloorForeign { .. }
                | OpenError::BelowFloor { .. }
                | OpenError::FloorDiffers { .. }
                | OpenError::WrongKey { .. },
            ) => 1,
            Self::Close(_) => 2,
            _ => 3,
        }
    }
}

/// Sends log lines to the standard error stream, as text or JSON. Once a process.
///
/// # Errors
/// Log lines go somewhere already.
pub fn init_logging(format: LogFormat) -> Result<(), String> {
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        // A line that cannot be written, because the log's disk is full or its reader gone, is lost. Reporting
        // that on the same stream would end the thread that only wanted to answer.
        .log_internal_errors(false);
    let done = match format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    done.map_err(|e| e.to_string())
}

/// Opens the ledger and serves it until SIGTERM or SIGINT; returns once it is closed.
///
/// `providers` is told the ledger's opened state, and gives who answers reads.
///
/// # Errors
/// [`RunError`].
pub fn run(options: Options, providers: impl FnOnce(&Opened) -> Providers) -> Result<(), RunError> {
    let started = Instant::now();
    let Options {
        ledger,
        state_root,
        config,
    } = options;
    // Taken first: a failed start must leave systemd's sockets to the next.
    let handed_over = handed_over()?;
    let metrics = Arc::new(Metrics::default());
    let (keeper, opened) =
        Keeper::open(&ledger, &state_root, config.writer.clone(), metrics.clone())?;
    let keeper = Arc::new(keeper);
    tracing::info!(
        frames = opened.frames,
        unclean = opened.unclean,
        origin = %opened.origin,
        index_rebuilt = opened.index.rebuilt.as_deref(),
        "the ledger is open"
    );
    if let Some(why) = &opened.index.in_memory {
        tracing::warn!(%why, "the identifier index is kept in memory only");
    }
    let id = opened.origin.id_hex();
    let listeners = if config.listeners.is_empty() {
        listeners_or_default(&config, &runtime_folder(id)?)
    } else {
        config.listeners.clone()
    };
    // Whoever reads the status may stand in another folder.
    let ledger = std::path::absolute(&ledger).unwrap_or(ledger);
    let parts = Parts {
        appender: keeper.clone(),
        providers: providers(&opened),
        metrics,
        facts: Facts {
            state: state_root.join(id),
            ledger,
            name: opened.origin.name().to_owned(),
            writer: config.writer,
            started,
            index_in_memory: opened.index.in_memory.clone(),
        },
        limits: config.limits,
        drain_time: config.drain_time,
        listeners,
        handed_over,
        tcp: config.tcp,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // It accepts, feeds the watchdog and hears signals; connections have threads of their own.
        .worker_threads(1)
        .build()?;
    let served = runtime.block_on(serve_until_signal(parts));
    if served.is_err() {
        // The sockets failed, so nothing was appended; what recovery wrote is closed all the same.
        let _ = keeper.close();
    }
    served
}

async fn serve_until_signal(parts: Parts) -> Result<(), RunError> {
    let name = parts.facts.name.clone();
    // First: once there is a socket, a signal must not end the process as if nobody listened.
    let stop = stop_signal()?;
    let running = start(parts).await?;
    for socket in &running.app().sockets {
        tracing::info!(socket = %socket.name, role = socket.role, "serving");
    }
    tell_ready(&name);
    let signal = stop.await;
    tracing::info!(signal, "stopping");
    tell_stopping();
    let closed = running.stop().await;
    closed.map_err(|refusal| RunError::Close(refusal.to_problem(false).detail))
}
