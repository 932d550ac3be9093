//! `ledger healthcheck`: one bit, for containers and load balancers.

use std::path::PathBuf;

use clap::Args;

use crate::exit::{Exit, Failure};
use crate::socket::{self, ANY};

/// Say whether the daemon takes appends
///
/// Without --socket the daemon's sockets are looked for in the default place, which a container has for itself. Nothing
/// is printed when all is well.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLE
  ledger healthcheck --socket /run/ledger/writer.sock
  HEALTHCHECK CMD [\"ledger\", \"healthcheck\"]              in a Dockerfile

EXIT CODES
  0 it takes appends   1 it does not, or is not reached   64 the command line was wrong")]
pub(crate) struct HealthcheckArgs {
    /// Any socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: &HealthcheckArgs) -> anyhow::Result<Exit> {
    match check(args) {
        Ok(()) => Ok(Exit::Done),
        // Containers know two answers.
        Err(error) => Err(Failure::new(Exit::Refused, format!("{error:#}")).into()),
    }
}

fn check(args: &HealthcheckArgs) -> anyhow::Result<()> {
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => socket::only_socket(ANY)?,
    };
    let ready = socket::call(&socket, true, |client| async move { client.ready().await })?;
    Ok(ready.map_err(|error| socket::failure(&socket, &error))?)
}
