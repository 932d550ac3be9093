//! Who is at the other end of a socket, as the kernel says, and what they may append.
//!
//! Not authentication of a person: a uid is what the kernel of this machine attests.

use crate::config::{PeerRule, Role};
use ledger_records::{Attested, RecordType};
use std::sync::Arc;
use tokio::net::UnixStream;

/// The peer's credentials at the moment it connected; pid 0 where the kernel does not know it here,
/// as for a process of another container.
///
/// # Errors
/// The kernel did not say.
pub fn credentials(socket: &UnixStream) -> std::io::Result<Attested> {
    let found = socket.peer_cred()?;
    Ok(Attested {
        uid: found.uid(),
        gid: found.gid(),
        pid: found
            .pid()
            .and_then(|pid| u32::try_from(pid).ok())
            .unwrap_or(0),
    })
}

/// What a peer may append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Permitted {
    /// Any type.
    All,
    /// These types.
    Only(Arc<[RecordType]>),
    /// Nothing at all, and every request is answered with 403.
    Unmapped,
}

impl Permitted {
    /// What the rules of a listener say of a peer. Without any rule, everything: the socket's mode
    /// and group decide then. Of several rules that fit, a uid's comes before a gid's.
    #[must_use]
    pub fn by_rules(rules: &[PeerRule], peer: Attested) -> Self {
        if rules.is_empty() {
            return Self::All;
        }
        let by_uid = rules.iter().find(|r| r.uid == Some(peer.uid));
        let rule = by_uid.or_else(|| {
            rules
                .iter()
                .find(|r| r.uid.is_none() && r.gid == Some(peer.gid))
        });
        match rule {
            None => Self::Unmapped,
            Some(rule) => match &rule.types {
                None => Self::All,
                Some(types) => Self::Only(types.clone().into()),
            },
        }
    }

    /// Whether a record of this type may be appended.
    #[must_use]
    pub fn allows(&self, record_type: RecordType) -> bool {
        match self {
            Self::All => true,
            Self::Only(types) => types.contains(&record_type),
            Self::Unmapped => false,
        }
    }
}

/// One connection: which socket it came through, who opened it, what they may do.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The socket's name in logs and metrics.
    pub socket: Arc<str>,
    /// What the socket offers.
    pub role: Role,
    /// Who is at the other end; all zeros over TCP, where nothing is attested.
    pub attested: Attested,
    /// What they may append.
    pub permitted: Permitted,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(uid: Option<u32>, gid: Option<u32>, types: Option<Vec<RecordType>>) -> PeerRule {
        PeerRule { uid, gid, types }
    }

    #[test]
    fn a_uid_comes_before_a_gid_and_nobody_else_is_mapped() {
        let peer = Attested {
            uid: 7,
            gid: 8,
            pid: 9,
        };
        assert_eq!(Permitted::by_rules(&[], peer), Permitted::All);
        let by_gid = rule(None, Some(8), Some(vec![RecordType::Run]));
        let found = Permitted::by_rules(std::slice::from_ref(&by_gid), peer);
        assert!(found.allows(RecordType::Run) && !found.allows(RecordType::Action));
        let rules = [by_gid, rule(Some(7), None, None)];
        assert_eq!(Permitted::by_rules(&rules, peer), Permitted::All);
        let stranger = Attested {
            uid: 65534,
            gid: 65534,
            pid: 1,
        };
        let found = Permitted::by_rules(&rules, stranger);
        assert_eq!(found, Permitted::Unmapped);
        assert!(!found.allows(RecordType::Run));
    }

    #[tokio::test]
    async fn the_kernel_names_this_process() {
        let (a, _b) = UnixStream::pair().unwrap();
        let found = credentials(&a).unwrap();
        assert_eq!(found.pid, std::process::id());
        assert_eq!(found.uid, rustix::process::getuid().as_raw());
    }
}
