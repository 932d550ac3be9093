//! Where a daemon's socket is, and who holds what is in the way.
//!
//! Not the protocol: that is `ledger-client`'s.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds an exclusive lock on a file, as `/proc` tells; none where it does not.
pub(crate) fn holder_of_lock(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    let wanted = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4711 fe:01:2885 0 EOF`
    let pid: u32 = locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(4);
        let pid = fields.next()?;
        (fields.next()? == wanted).then(|| pid.parse().ok())?
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = crate::terminal::Shown(name.trim_end()).to_string();
    Some(if name.is_empty() {
        format!("process {pid} holds it")
    } else {
        format!("process {pid} ({name}) holds it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(holder_of_lock(&path), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let holder = holder_of_lock(&path);
        let own = format!("process {} (", std::process::id());
        // Without /proc, or where it shows another machine's processes, nothing is said.
        assert!(
            holder.is_none_or(|text| text.starts_with(&own)),
            "another process than this one"
        );
    }
}
