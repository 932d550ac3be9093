//! The hashes of the tree in tiles (C2SP tlog-tiles, height 8): written at checkpoints, read for proofs.
//!
//! A proof of O(log n) hashes costs a tile a level. Which nodes a proof has is the proof library's; here is
//! only where they lie. Nothing read here is believed: a path counts once it leads to a signed root.

use std::io;
use std::path::{Path, PathBuf};

use ct_merkle::{indices_for_consistency_proof, indices_for_inclusion_proof};
use ledger_format::{Frontier, Hash, Seq, node_hash};
use thiserror::Error;

use crate::tile_files::{HEIGHT, TileFolder, TileId, WIDTH};

/// Levels of tiles: enough for 2^62 leaves.
const LEVELS: usize = 8;
/// Trees above this are not asked for.
const SIZE_MAX: u64 = 1 << 62;

/// Why there is no proof, or why tiles were not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TileError {
    /// A tile is not there, or is cut: make them again from the links.
    #[error("tile {level}/{index} is missing or cut; tiles are derived and can be made again")]
    Lost {
        /// Its level.
        level: u8,
        /// Its place in the level.
        index: u64,
    },
    /// There is no such leaf or tree.
    #[error("there is no leaf {leaf} in a tree of {size} leaves")]
    Bounds {
        /// The leaf, or the size of the smaller tree.
        leaf: u64,
        /// The size of the tree.
        size: u64,
    },
    /// The file system failed.
    #[error("{path}: {operation} failed: {source}", path = .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TileError {
    let path = path.to_owned();
    move |source| TileError::Io {
        operation,
        path,
        source,
    }
}

/// Reads tiles of a ledger, also while a writer adds to them.
#[derive(Debug)]
pub struct TileReader {
    folder: TileFolder,
}

impl TileReader {
    /// Opens `tiles/` in the ledger's folder.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn open(ledger: &Path) -> Result<Self, TileError> {
        let folder = TileFolder::open(ledger, false).map_err(failed("open tiles", ledger))?;
        Ok(Self { folder })
    }

    /// The audit path of a leaf in the tree of `size` leaves, leaf to root. Hold it against a signed root
    /// with [`ledger_format::verify_inclusion`]: a tile that was altered makes another path.
    ///
    /// # Errors
    /// See [`TileError`].
    pub fn inclusion_path(&self, leaf: Seq, size: u64) -> Result<Vec<Hash>, TileError> {
        if leaf.0 >= size || size > SIZE_MAX {
            return Err(TileError::Bounds { leaf: leaf.0, size });
        }
        self.nodes(&indices_for_inclusion_proof(size, leaf.0), size)
    }

    /// The proof that the tree of `old` leaves is a beginning of the tree of `size` leaves. Hold it against
    /// both roots with [`ledger_format::verify_consistency`].
    ///
    /// # Errors
    /// See [`TileError`].
    pub fn consistency_path(&self, old: u64, size: u64) -> Result<Vec<Hash>, TileError> {
        if old == 0 || old > size || size > SIZE_MAX {
            return Err(TileError::Bounds { leaf: old, size });
        }
        if old == size {
            return Ok(Vec::new());
        }
        self.nodes(&indices_for_consistency_proof(old, size - old), size)
    }

    /// The root of the tree of `size` leaves, as the tiles have it.
    ///
    /// # Errors
    /// See [`TileError`].
    pub fn root(&self, size: u64) -> Result<Hash, TileError> {
        Ok(self.frontier(size)?.root())
    }

    /// The right edge of the tree of `size` leaves, as the tiles have it.
    fn frontier(&self, size: u64) -> Result<Frontier, TileError> {
        let bounds = TileError::Bounds { leaf: 0, size };
        if size > SIZE_MAX {
            return Err(bounds);
        }
        let mut tiles = Tiles::new(&self.folder);
        let hashes = perfect_subtrees(0, size)
            .map(|(level, index)| tiles.node(level, index))
            .collect::<Result<Vec<_>, _>>()?;
        Frontier::from_hashes(size, &hashes).ok_or(bounds)
    }

    /// Nodes by their number in the array of RFC 9420: the level is the number of trailing ones.
    fn nodes(&self, numbers: &[u64], size: u64) -> Result<Vec<Hash>, TileError> {
        let mut tiles = Tiles::new(&self.folder);
        let hash = |number: &u64| {
            let level = number.trailing_ones();
            let first = (number >> (level + 1)) << level;
            let end = first.saturating_add(1 << level);
            if end <= size {
                return tiles.node(level, first >> level);
            }
            // The right edge: what is there of a node that is not perfect yet.
            let mut edge: Option<Hash> = None;
            let subtrees: Vec<_> = perfect_subtrees(first, size).collect();
            for (level, index) in subtrees.into_iter().rev() {
                let left = tiles.node(level, index)?;
                edge = Some(match edge {
                    None => left,
                    Some(right) => node_hash(&left, &right),
                });
            }
            edge.ok_or(TileError::Bounds { leaf: first, size })
        };
        numbers.iter().map(hash).collect()
    }
}

/// The greatest perfect subtrees from leaf `first`, the start of one, to before `end`: level and place.
fn perfect_subtrees(first: u64, end: u64) -> impl Iterator<Item = (u32, u64)> {
    let mut at = first;
    std::iter::from_fn(move || {
        let left = end.checked_sub(at).filter(|left| *left > 0)?;
        let level = left.ilog2();
        let index = at >> level;
        at += 1 << level;
        Some((level, index))
    })
}

/// Nodes of one proof; keeps the tiles that it read.
struct Tiles<'a> {
    folder: &'a TileFolder,
    read: Vec<(TileId, Vec<Hash>)>,
}

impl<'a> Tiles<'a> {
    fn new(folder: &'a TileFolder) -> Self {
        Self {
            folder,
            read: Vec::new(),
        }
    }

    /// The root of a perfect subtree.
    fn node(&mut self, level: u32, index: u64) -> Result<Hash, TileError> {
        let tile_level = u8::try_from(level / HEIGHT).unwrap_or(u8::MAX);
        let height = level % HEIGHT;
        // In hashes of the tile level.
        let first = index << height;
        let id = TileId {
            level: tile_level,
            index: first / WIDTH as u64,
        };
        let from = (first % WIDTH as u64) as usize;
        let to = from + (1 << height);
        let hashes = self.tile(id, to)?;
        let lost = TileError::Lost {
            level: id.level,
            index: id.index,
        };
        Ok(subtree_root(hashes.get(from..to).ok_or(lost)?))
    }

    fn tile(&mut self, id: TileId, width: usize) -> Result<&[Hash], TileError> {
        let held = self
            .read
            .iter()
            .position(|(held, hashes)| *held == id && hashes.len() >= width);
        let at = match held {
            Some(at) => at,
            None => {
                let hashes = self
                    .folder
                    .read(id, width)
                    .map_err(failed("read a tile", self.folder.path()))?
                    .ok_or(TileError::Lost {
                        level: id.level,
                        index: id.index,
                    })?;
                self.read.push((id, hashes));
                self.read.len() - 1
            }
        };
        Ok(self.read.get(at).map_or(&[], |(_, hashes)| hashes))
    }
}

/// The root over hashes, a power of two of them.
fn subtree_root(hashes: &[Hash]) -> Hash {
    match hashes {
        [one] => *one,
        _ => {
            let mut frontier = Frontier::empty();
            hashes.iter().for_each(|hash| frontier.push(*hash));
            frontier.root()
        }
    }
}

/// The tile of a level that is not full yet.
#[derive(Clone, Debug, Default)]
struct Edge {
    /// Full tiles before it.
    index: u64,
    hashes: Vec<Hash>,
    /// Hashes of it that are on disk.
    written: usize,
}

/// Writes tiles, for the one process that holds the ledger's lock.
#[derive(Debug)]
pub struct TileStore {
    reader: TileReader,
    size: u64,
    edges: [Edge; LEVELS],
    /// A write failed: what is on disk is behind `edges`.
    behind: bool,
}

impl TileStore {
    /// Opens `tiles/` in the ledger's folder, made if it is not there, at the tree that `frontier` is of: a
    /// checkpoint's, or a segment_open's. Leaves from there on are then appended, those again that are in
    /// tiles already.
    ///
    /// Tiles that do not make this frontier, or lack its right edge, are not used: [`size`](Self::size) is
    /// then 0, and every leaf is appended again. Tiles further left are not looked at.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open(ledger: &Path, frontier: &Frontier) -> Result<Self, TileError> {
        let folder = TileFolder::open(ledger, true).map_err(failed("open tiles", ledger))?;
        let reader = TileReader { folder };
        let edges = match reader.frontier(frontier.size()) {
            Ok(found) if found == *frontier => read_edges(&reader.folder, frontier.size())?,
            Ok(_) | Err(TileError::Lost { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(match edges {
            Some(edges) => Self {
                reader,
                size: frontier.size(),
                edges,
                behind: false,
            },
            None => Self {
                reader,
                size: 0,
                edges: Default::default(),
                behind: false,
            },
        })
    }

    /// Opens `tiles/` in the ledger's folder, made if it is not there, to write it from the first leaf on.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open_empty(ledger: &Path) -> Result<Self, TileError> {
        let folder = TileFolder::open(ledger, true).map_err(failed("open tiles", ledger))?;
        Ok(Self {
            reader: TileReader { folder },
            size: 0,
            edges: Default::default(),
            behind: false,
        })
    }

    /// Leaves in the tiles.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// For proofs.
    #[must_use]
    pub fn reader(&self) -> &TileReader {
        &self.reader
    }

    /// Appends the leaves from [`size`](Self::size) on, and writes every tile that they change, partial ones
    /// too. Not synced.
    ///
    /// # Errors
    /// The file system failed: open the store anew.
    pub fn append(&mut self, leaves: &[Hash]) -> Result<(), TileError> {
        let written = self.write(leaves);
        self.behind |= written.is_err();
        written.map_err(failed("write a tile", self.reader.folder.path()))
    }

    fn write(&mut self, leaves: &[Hash]) -> io::Result<()> {
        if self.behind {
            return Err(io::Error::other("an earlier write failed"));
        }
        for leaf in leaves {
            self.push(*leaf)?;
        }
        self.size += leaves.len() as u64;
        for (level, edge) in self.edges.iter_mut().enumerate() {
            if edge.hashes.len() > edge.written {
                let id = TileId {
                    level: level as u8,
                    index: edge.index,
                };
                self.reader.folder.write(id, &edge.hashes, edge.written)?;
                edge.written = edge.hashes.len();
            }
        }
        Ok(())
    }

    fn push(&mut self, leaf: Hash) -> io::Result<()> {
        let mut hash = leaf;
        for (level, edge) in self.edges.iter_mut().enumerate() {
            edge.hashes.push(hash);
            if edge.hashes.len() < WIDTH {
                break;
            }
            let id = TileId {
                level: level as u8,
                index: edge.index,
            };
            self.reader.folder.write(id, &edge.hashes, edge.written)?;
            hash = subtree_root(&edge.hashes);
            edge.hashes.clear();
            (edge.index, edge.written) = (edge.index + 1, 0);
        }
        Ok(())
    }
}

/// The right edge of each level at a size; None when a tile lacks it.
fn read_edges(folder: &TileFolder, size: u64) -> Result<Option<[Edge; LEVELS]>, TileError> {
    let mut edges: [Edge; LEVELS] = Default::default();
    for (level, edge) in edges.iter_mut().enumerate() {
        let hashes = size.checked_shr(level as u32 * HEIGHT).unwrap_or(0);
        edge.index = hashes / WIDTH as u64;
        let width = (hashes % WIDTH as u64) as usize;
        if width == 0 {
            continue;
        }
        let id = TileId {
            level: level as u8,
            index: edge.index,
        };
        let found = folder
            .read(id, width)
            .map_err(failed("read a tile", folder.path()))?;
        let Some(mut found) = found else {
            return Ok(None);
        };
        edge.written = found.len();
        found.truncate(width);
        edge.hashes = found;
        if edge.written != width {
            // A wider or full one, from before a crash: the next write takes it away.
            edge.written = 0;
        }
    }
    Ok(Some(edges))
}
