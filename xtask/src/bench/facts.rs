//! What the numbers were taken on. Reads `/proc`; what a system does not tell is `unknown`.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::workspace::Workspace;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Facts {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) memory: String,
    /// Of the folder that was measured in.
    pub(crate) file_system: String,
    pub(crate) dir: String,
    /// Load average before the first measurement: anything above 0.3 means a noisy run.
    pub(crate) load: String,
    pub(crate) commit: String,
}

impl Facts {
    pub(crate) fn of(workspace: &Workspace, dir: &Path) -> Self {
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: or_unknown(read("/proc/cpuinfo").and_then(|text| value_of(&text, "model name"))),
            kernel: or_unknown(read("/proc/sys/kernel/osrelease").map(|s| s.trim().to_owned())),
            memory: or_unknown(read("/proc/meminfo").and_then(|text| value_of(&text, "MemTotal"))),
            file_system: or_unknown(
                read("/proc/self/mountinfo").and_then(|text| mount_of(&text, dir)),
            ),
            dir: dir.display().to_string(),
            load: or_unknown(read("/proc/loadavg").map(|text| {
                text.split_whitespace()
                    .take(3)
                    .collect::<Vec<_>>()
                    .join(" ")
            })),
            commit: or_unknown(commit(workspace)),
        }
    }

    pub(crate) fn render(&self) -> String {
        format!(
            "machine   {} cores, {}, {} memory, kernel {}\nfolder    {} ({})\ncommit    {}    load {}\n",
            self.cores,
            self.cpu,
            self.memory,
            self.kernel,
            self.dir,
            self.file_system,
            self.commit,
            self.load
        )
    }
}

/// The value of the first `name : value` line.
fn value_of(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// Type, device and options of the deepest mount that holds `dir`.
fn mount_of(mountinfo: &str, dir: &Path) -> Option<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(4);
            let (point, options) = (fields.next()?, fields.next()?);
            let mut source = source.split(' ');
            let (kind, device) = (source.next()?, source.next()?);
            dir.starts_with(point)
                .then(|| (point.len(), format!("{kind} on {device}, {options}")))
        })
        // Of two mounts at one place the later hides the earlier.
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, text)| text)
}

fn commit(workspace: &Workspace) -> Option<String> {
    let git = |args: &[&str]| {
        let output = workspace
            .command("git")
            .args(["-c", "safe.directory=*"])
            .args(args)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if clean {
        hash
    } else {
        format!("{hash} with changes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 22 0:25 / /tmp rw,nosuid shared:1 - tmpfs tmpfs rw,size=1g\n\
        31 22 8:1 / /tmp/disk rw,noatime - xfs /dev/sdb rw\n\
        32 22 8:2 / /tmp/disk rw,noatime - btrfs /dev/sdc rw\n";

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let of = |dir: &str| mount_of(MOUNTS, Path::new(dir)).unwrap();
        assert_eq!(of("/home/a"), "ext4 on /dev/vda, rw,relatime");
        assert_eq!(of("/tmp/a"), "tmpfs on tmpfs, rw,nosuid");
        assert_eq!(of("/tmp/disk/a"), "btrfs on /dev/sdc, rw,noatime");
        // A name that only begins alike is another folder.
        assert_eq!(of("/tmp/disk2"), "tmpfs on tmpfs, rw,nosuid");
    }

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "model\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("AMD EPYC"));
        assert_eq!(value_of(text, "name"), None);
    }
}
