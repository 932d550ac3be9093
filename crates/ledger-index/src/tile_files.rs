//! Tile files: their names, and reading and writing them below a held folder. Not what their hashes mean.
//!
//! Nothing is synced: a tile that a power loss cut is noticed by its length, and every path that it is used
//! for is held against a signed root.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ledger_format::Hash;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Hashes of a full tile.
pub(crate) const WIDTH: usize = 256;
/// Bits of a position within a tile: C2SP's only height.
pub(crate) const HEIGHT: u32 = 8;
/// The name under which a tile is written before it is whole.
const TEMPORARY: &str = "new";

const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);
const FILE: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK);

/// Which tile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct TileId {
    pub(crate) level: u8,
    pub(crate) index: u64,
}

impl TileId {
    /// The folders below `tiles/` and the name in the last one: `tile/0/x001/x234/067`.
    fn path(self) -> (Vec<String>, String) {
        let mut groups = vec![self.index % 1000];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.push(rest % 1000);
            rest /= 1000;
        }
        let mut folders = vec!["tile".to_owned(), self.level.to_string()];
        let higher = groups.iter().skip(1).rev();
        folders.extend(higher.map(|group| format!("x{group:03}")));
        (folders, format!("{:03}", groups.first().unwrap_or(&0)))
    }
}

/// The folder `tiles/`, held.
#[derive(Debug)]
pub(crate) struct TileFolder {
    fd: OwnedFd,
    path: PathBuf,
}

impl TileFolder {
    /// Opens `tiles/` in the ledger's folder, and makes it first where it may.
    pub(crate) fn open(ledger: &Path, create: bool) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(ledger, flags, Mode::empty())?;
        let fd = if create {
            enter(&parent, "tiles")?
        } else {
            rustix::fs::openat(&parent, "tiles", FOLDER, Mode::empty())?
        };
        let path = ledger.join("tiles");
        Ok(Self { fd, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self, folders: &[String], create: bool) -> rustix::io::Result<OwnedFd> {
        let mut current = self.fd.try_clone().map_err(|_| Errno::MFILE)?;
        for name in folders {
            current = if create {
                enter(&current, name)?
            } else {
                rustix::fs::openat(&current, name.as_str(), FOLDER, Mode::empty())?
            };
        }
        Ok(current)
    }

    /// Writes a full or partial tile. A partial one that is there is lengthened, then renamed: what it had
    /// stays readable, under either name, at any moment.
    pub(crate) fn write(&self, id: TileId, hashes: &[Hash], old_width: usize) -> io::Result<()> {
        let (folders, name) = id.path();
        let folder = self.folder(&folders, true)?;
        let partials = format!("{name}.p");
        let full = hashes.len() == WIDTH;
        if old_width == 0 {
            // What an earlier, longer tree may have left here would be preferred by readers.
            let _ = rustix::fs::unlinkat(&folder, name.as_str(), AtFlags::empty());
            remove_partials(&folder, &partials);
            if full {
                return replace(&folder, &name, hashes);
            }
            return replace(
                &enter(&folder, &partials)?,
                &hashes.len().to_string(),
                hashes,
            );
        }
        let inner = enter(&folder, &partials)?;
        let old = old_width.to_string();
        let new = hashes.len().to_string();
        let (into, new) = if full {
            (&folder, &name)
        } else {
            (&inner, &new)
        };
        match lengthen(&inner, &old, hashes, old_width) {
            Ok(()) => rustix::fs::renameat(&inner, old.as_str(), into, new.as_str())?,
            // Somebody took it away.
            Err(_) => replace(into, new, hashes)?,
        }
        if full {
            let _ = rustix::fs::unlinkat(&folder, partials, AtFlags::REMOVEDIR);
        }
        Ok(())
    }

    /// The tile's hashes, `width` at least; None when no file has so many.
    pub(crate) fn read(&self, id: TileId, width: usize) -> io::Result<Option<Vec<Hash>>> {
        let (folders, name) = id.path();
        let folder = match self.folder(&folders, false) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // A writer may replace a partial tile between the two steps.
        for _ in 0..3 {
            if let Some(hashes) = read_file(&folder, &name, WIDTH)? {
                return Ok(Some(hashes));
            }
            let Some((partials, found)) = widest(&folder, &format!("{name}.p"))? else {
                return Ok(None);
            };
            if found < width {
                return Ok(None);
            }
            if let Some(hashes) = read_file(&partials, &found.to_string(), found)? {
                return Ok(Some(hashes));
            }
        }
        Ok(None)
    }
}

/// Opens a folder in another one, and makes it first if it is not there.
fn enter(parent: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::openat(&parent, name, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::openat(&parent, name, FOLDER, Mode::empty())
        }
        other => other,
    }
}

fn replace(folder: &OwnedFd, name: &str, hashes: &[Hash]) -> io::Result<()> {
    let flags = FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let fd = rustix::fs::openat(folder, TEMPORARY, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(fd).write_all(hashes.as_flattened())?;
    rustix::fs::renameat(folder, TEMPORARY, folder, name)?;
    Ok(())
}

/// Writes the hashes from `from` on behind those that the file has.
fn lengthen(folder: &OwnedFd, name: &str, hashes: &[Hash], from: usize) -> io::Result<()> {
    let fd = rustix::fs::openat(folder, name, FILE | OFlags::WRONLY, Mode::empty())?;
    let file = File::from(fd);
    let new = hashes.get(from..).unwrap_or(&[]);
    file.write_all_at(new.as_flattened(), (from * size_of::<Hash>()) as u64)?;
    file.set_len(size_of_val(hashes) as u64)
}

fn remove_partials(folder: &OwnedFd, partials: &str) {
    if let Ok(inner) = rustix::fs::openat(folder, partials, FOLDER, Mode::empty()) {
        for name in widths(&inner).unwrap_or_default() {
            let _ = rustix::fs::unlinkat(&inner, name.to_string(), AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&inner, TEMPORARY, AtFlags::empty());
    }
    let _ = rustix::fs::unlinkat(folder, partials, AtFlags::REMOVEDIR);
}

/// The widths of the partial tiles in a folder.
fn widths(folder: &OwnedFd) -> rustix::io::Result<Vec<usize>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        if let Some(width) = name.and_then(|name| name.parse::<usize>().ok())
            && (1..WIDTH).contains(&width)
        {
            found.push(width);
        }
    }
    Ok(found)
}

fn widest(folder: &OwnedFd, partials: &str) -> io::Result<Option<(OwnedFd, usize)>> {
    let inner = match rustix::fs::openat(folder, partials, FOLDER, Mode::empty()) {
        Ok(inner) => inner,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let widest = widths(&inner)?.into_iter().max();
    Ok(widest.map(|width| (inner, width)))
}

/// The first hashes of a file, or None when it is not there or has fewer. It has more while it is lengthened.
fn read_file(folder: &OwnedFd, name: &str, width: usize) -> io::Result<Option<Vec<Hash>>> {
    let fd = match rustix::fs::openat(folder, name, FILE | OFlags::RDONLY, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    if kind != FileType::RegularFile {
        return Ok(None);
    }
    let len = width * size_of::<Hash>();
    let mut bytes = Vec::with_capacity(len + 1);
    File::from(fd)
        .take(len as u64 + 1)
        .read_to_end(&mut bytes)?;
    let (hashes, _) = bytes.as_chunks::<32>();
    Ok((bytes.len() == len).then(|| hashes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standard() {
        let name = |level, index| {
            let (folders, name) = TileId { level, index }.path();
            format!("{}/{name}", folders.join("/"))
        };
        assert_eq!(name(0, 0), "tile/0/000");
        assert_eq!(name(1, 999), "tile/1/999");
        assert_eq!(name(0, 1000), "tile/0/x001/000");
        assert_eq!(name(0, 1_234_067), "tile/0/x001/x234/067");
        assert_eq!(name(3, 70_000_000_001), "tile/3/x070/x000/x000/001");
    }
}
