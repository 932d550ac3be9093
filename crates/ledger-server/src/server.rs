//! The daemon's parts put together and running inside a runtime: sockets, router, supervisor.
//!
//! [`crate::run`] is the process around it. Here is nothing of signals or exit codes.

use crate::api::{App, router};
use crate::appender::{AppendRefusal, Appender, Condition};
use crate::body::Budget;
use crate::config::{Limits, Listener, PeerRule, Role};
use crate::connection::{Accept, Socket, serve};
use crate::metrics::{Metrics, SocketFigures};
use crate::peer::{Peer, Permitted, credentials};
use crate::proofs::{ProofProvider, SegmentProofs};
use crate::records::{KeylessRecords, RecordProvider};
use crate::socket::{SocketError, SocketFile};
use crate::status::Facts;
use crate::system::{HandedOver, TCP_ROLE, feed_watchdog, sockets_for, stopped};
use crate::trace::TraceProvider;
use ledger_records::Attested;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Between two looks at the writer.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Who answers reads. What is none is answered from the folder without any key, or not offered.
#[derive(Clone, Default)]
pub struct Providers {
    /// Single frames.
    pub records: Option<Arc<dyn RecordProvider>>,
    /// Stories.
    pub trace: Option<Arc<dyn TraceProvider>>,
    /// Audit paths.
    pub proofs: Option<Arc<dyn ProofProvider>>,
}

impl std::fmt::Debug for Providers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Providers")
            .field("records", &self.records.is_some())
            .field("trace", &self.trace.is_some())
            .field("proofs", &self.proofs.is_some())
            .finish()
    }
}

/// What a server is made of.
pub struct Parts {
    /// The writer.
    pub appender: Arc<dyn Appender>,
    /// Who answers reads.
    pub providers: Providers,
    /// What is counted; the appender may count too.
    pub metrics: Arc<Metrics>,
    /// What the status says that does not change.
    pub facts: Facts,
    /// Bounds.
    pub limits: Limits,
    /// How long a stop waits for requests under way.
    pub drain_time: Duration,
    /// The sockets.
    pub listeners: Vec<Listener>,
    /// Sockets that systemd made.
    pub handed_over: Vec<HandedOver>,
    /// Health and metrics over loopback TCP.
    pub tcp: Option<SocketAddr>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parts({})", self.facts.ledger.display())
    }
}

/// A server that serves.
#[derive(Debug)]
pub struct Running {
    app: Arc<App>,
    stop: watch::Sender<bool>,
    serving: JoinSet<()>,
    helpers: JoinSet<()>,
    files: Vec<SocketFile>,
    tcp: Option<SocketAddr>,
}

/// Binds all sockets and serves. Must be called in a runtime, which accepts; each
/// connection has a thread of its own.
///
/// # Errors
/// A socket could not be made; none is left then.
pub async fn start(parts: Parts) -> Result<Running, SocketError> {
    let bound = sockets_for(parts.listeners, parts.handed_over)?;
    let tcp = match parts.tcp {
        None => None,
        Some(address) => Some(bind_tcp(address).await?),
    };
    let tcp_address = tcp.as_ref().and_then(|t| t.local_addr().ok());
    let (stop, stopping) = watch::channel(false);
    let mut figures: Vec<_> = bound
        .iter()
        .map(|(l, _)| SocketFigures::new(l.path.display().to_string(), l.role.name()))
        .collect();
    figures.extend(tcp_address.map(|a| SocketFigures::new(a.to_string(), TCP_ROLE.name())));
    let ledger = parts.facts.ledger.clone();
    let keyless = || {
        Arc::new(KeylessRecords {
            ledger: ledger.clone(),
        })
    };
    let proofs = || Arc::new(SegmentProofs::new(ledger.clone()));
    let app = Arc::new(App {
        budget: Budget::new(&parts.limits),
        appender: parts.appender,
        records: parts.providers.records.unwrap_or_else(|| keyless()),
        trace: parts.providers.trace,
        proofs: parts.providers.proofs.unwrap_or_else(|| proofs()),
        metrics: parts.metrics,
        sockets: figures.clone(),
        facts: parts.facts,
        limits: parts.limits,
        stop: stopping.clone(),
    });
    let router = router(app.clone());
    let socket = |figures: Arc<SocketFigures>| {
        Arc::new(Socket {
            router: router.clone(),
            limits: app.limits.clone(),
            figures,
            stop: stopping.clone(),
            drain_time: parts.drain_time,
        })
    };
    let (mut serving, mut files, mut figures) = (JoinSet::new(), Vec::new(), figures.into_iter());
    for (listener, bound) in bound {
        let (std_listener, file) = bound.split();
        files.push(file);
        let accept = UnixAccept::new(std_listener, &listener)?;
        if let Some(figures) = figures.next() {
            serving.spawn(serve(accept, socket(figures)));
        }
    }
    if let (Some(listener), Some(figures)) = (tcp, figures.next()) {
        let accept = TcpAccept {
            listener,
            name: figures.name.as_str().into(),
        };
        serving.spawn(serve(accept, socket(figures)));
    }
    let mut helpers = JoinSet::new();
    helpers.spawn(look_after(app.clone(), stopping.clone()));
    helpers.spawn(feed_watchdog());
    Ok(Running {
        app,
        stop,
        serving,
        helpers,
        files,
        tcp: tcp_address,
    })
}

impl Running {
    /// The state that the router answers from.
    #[must_use]
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The TCP listener's address, with its port.
    #[must_use]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Stops accepting, drains, closes the segment, signs. The sockets are gone when it returns.
    ///
    /// # Errors
    /// The ledger could not be closed; opening it recovers.
    pub async fn stop(mut self) -> Result<(), AppendRefusal> {
        let _ = self.stop.send(true);
        while self.serving.join_next().await.is_some() {}
        self.files.clear();
        let appender = self.app.appender.clone();
        let closed = tokio::task::spawn_blocking(move || appender.close()).await;
        self.helpers.abort_all();
        closed.unwrap_or_else(|e| Err(AppendRefusal::Stopped(e.to_string())))
    }
}

async fn bind_tcp(address: SocketAddr) -> Result<TcpListener, SocketError> {
    let bound = if address.ip().is_loopback() {
        TcpListener::bind(address).await
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a loopback address",
        ))
    };
    bound.map_err(|source| SocketError::Io {
        operation: "binding",
        path: address.to_string().into(),
        source,
    })
}

/// Looks at the writer once a second; a change for the worse is counted and logged.
async fn look_after(app: Arc<App>, stop: watch::Receiver<bool>) {
    let mut accepting = true;
    let mut tick = tokio::time::interval(LOOK_AFTER);
    loop {
        tokio::select! {
            () = stopped(stop.clone()) => return,
            _ = tick.tick() => {}
        }
        match app.appender.state().condition {
            Condition::Accepting => accepting = true,
            Condition::Closed => return,
            Condition::DiskFull(why) | Condition::Stopped(why) => {
                if std::mem::replace(&mut accepting, false) {
                    app.metrics.faults.fetch_add(1, Relaxed);
                    tracing::error!(%why, "the ledger takes no appends");
                }
            }
        }
        let appender = app.appender.clone();
        // A task that panicked is tried again at the next look.
        let _ = tokio::task::spawn_blocking(move || appender.look_after()).await;
    }
}

struct UnixAccept {
    listener: UnixListener,
    name: Arc<str>,
    role: Role,
    rules: Vec<PeerRule>,
}

impl UnixAccept {
    fn new(
        listener: std::os::unix::net::UnixListener,
        wanted: &Listener,
    ) -> Result<Self, SocketError> {
        let listening = listener
            .set_nonblocking(true)
            .and_then(|()| UnixListener::from_std(listener));
        let listener = listening.map_err(|source| SocketError::Io {
            operation: "listening",
            path: wanted.path.clone(),
            source,
        })?;
        Ok(Self {
            listener,
            name: wanted.path.display().to_string().into(),
            role: wanted.role,
            rules: wanted.peers.clone(),
        })
    }
}

impl Accept for UnixAccept {
    type Loose = std::os::unix::net::UnixStream;
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(Self::Loose, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let attested = credentials(&stream)?;
        let peer = Peer {
            socket: self.name.clone(),
            role: self.role,
            attested,
            permitted: Permitted::by_rules(&self.rules, attested),
        };
        Ok((stream.into_std()?, peer))
    }

    fn enter(loose: Self::Loose) -> io::Result<UnixStream> {
        UnixStream::from_std(loose)
    }
}

struct TcpAccept {
    listener: TcpListener,
    name: Arc<str>,
}

impl Accept for TcpAccept {
    type Loose = std::net::TcpStream;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(Self::Loose, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let nobody = Attested {
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let peer = Peer {
            socket: self.name.clone(),
            role: TCP_ROLE,
            attested: nobody,
            permitted: Permitted::All,
        };
        Ok((stream.into_std()?, peer))
    }

    fn enter(loose: Self::Loose) -> io::Result<TcpStream> {
        TcpStream::from_std(loose)
    }
}
