//! What systemd and the kernel tell the daemon, and what it tells systemd. Without systemd nothing
//! here does anything.

use crate::config::{Listener, Role};
use crate::socket::{Bound, SocketError};
use sd_notify::NotifyState;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A socket that systemd made, and the name that its unit gives it (`FileDescriptorName=`).
#[derive(Debug)]
pub struct HandedOver {
    listener: UnixListener,
    path: Option<PathBuf>,
    name: String,
}

/// The sockets that this process was started with (`LISTEN_FDS`).
///
/// # Errors
/// A descriptor is no listening unix socket.
pub fn handed_over() -> std::io::Result<Vec<HandedOver>> {
    let mut given = listenfd::ListenFd::from_env();
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut found = Vec::with_capacity(given.len());
    for i in 0..given.len() {
        let name = names.next().unwrap_or_default().to_owned();
        if let Some(listener) = given.take_unix_listener(i)? {
            let address = listener.local_addr()?;
            let path = address.as_pathname().map(PathBuf::from);
            found.push(HandedOver {
                listener,
                path,
                name,
            });
        }
    }
    Ok(found)
}

/// Each wanted listener with its socket: handed over where one has its path or its role as name,
/// made otherwise.
pub(crate) fn sockets_for(
    wanted: Vec<Listener>,
    mut given: Vec<HandedOver>,
) -> Result<Vec<(Listener, Bound)>, SocketError> {
    let mut sockets = Vec::with_capacity(wanted.len());
    for listener in wanted {
        let at = given
            .iter()
            .position(|g| g.path.as_ref() == Some(&listener.path))
            .or_else(|| given.iter().position(|g| g.name == listener.role.name()));
        let bound = match at {
            Some(at) => Bound::handed_over(given.swap_remove(at).listener),
            None => Bound::make(&listener)?,
        };
        sockets.push((listener, bound));
    }
    if let Some(unused) = given.pop() {
        let name = unused.path.unwrap_or_else(|| unused.name.into());
        let why = "no [[listener]] has this path, and its FileDescriptorName is no role";
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
        return Err(SocketError::Io {
            operation: "taking a socket from systemd",
            path: name,
            source,
        });
    }
    Ok(sockets)
}

/// Tells systemd that the daemon serves.
pub(crate) fn tell_ready(name: &str) {
    let status = format!("serving {name}");
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Tells systemd that the daemon stops.
pub(crate) fn tell_stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("draining and closing the segment"),
    ]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "systemd could not be told");
    }
}

/// Feeds systemd's watchdog, if it is on, from the runtime's own timer: it shows that the runtime
/// runs. A sync that takes long holds its connection's thread and does not delay it.
pub(crate) async fn feed_watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let mut tick = tokio::time::interval((limit / 3).max(Duration::from_millis(10)));
    loop {
        tick.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

/// Listens from now on; the future returns at SIGTERM or SIGINT, also at one that came before it is
/// waited for.
///
/// # Errors
/// Signals cannot be listened for.
pub(crate) fn stop_signal() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

/// Whether a stop was asked for; used where the sender may be gone.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone is a stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The TCP listener's role.
pub(crate) const TCP_ROLE: Role = Role::Metrics;
