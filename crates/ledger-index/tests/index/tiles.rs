//! Tiles: proofs against the proof library, names and bytes against the standard, and losses.

use std::fs;
use std::path::Path;

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use ledger_format::{Frontier, Hash, Link, Seq, leaf_hash, verify_consistency, verify_inclusion};
use ledger_index::{TileError, TileReader, TileStore};
use proptest::prelude::*;
use sha2::Sha256;

fn link(n: u64) -> Link {
    let mut link = [0x5a; 32];
    link[..8].copy_from_slice(&n.to_be_bytes());
    Link(link)
}

fn leaves(from: u64, to: u64) -> Vec<Hash> {
    (from..to).map(|n| leaf_hash(&link(n))).collect()
}

fn frontier(size: u64) -> Frontier {
    let mut frontier = Frontier::empty();
    leaves(0, size)
        .into_iter()
        .for_each(|leaf| frontier.push(leaf));
    frontier
}

/// Everything a tree of this size can be asked, against roots that were computed without tiles.
fn check(reader: &TileReader, size: u64) {
    let root = frontier(size).root();
    assert_eq!(reader.root(size).unwrap(), root);
    let step = (size / 40).max(1) as usize;
    for leaf in (0..size).step_by(step).chain([size - 1]) {
        let path = reader.inclusion_path(Seq(leaf), size).unwrap();
        verify_inclusion(Seq(leaf), &link(leaf), &path, size, &root).unwrap();
        let old = leaf + 1;
        let path = reader.consistency_path(old, size).unwrap();
        verify_consistency(old, &frontier(old).root(), size, &root, &path).unwrap();
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path.to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn the_same_paths_as_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = TileStore::open(folder.path(), &Frontier::empty()).unwrap();
    let mut tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    for size in 1..=600_u64 {
        store.append(&leaves(size - 1, size)).unwrap();
        tree.push(link(size - 1).0.to_vec());
        if ![1, 2, 3, 5, 17, 255, 256, 257, 511, 512, 513, 600].contains(&size) {
            continue;
        }
        assert_eq!(
            store.reader().root(size).unwrap()[..],
            tree.root().as_bytes()[..]
        );
        for leaf in 0..size {
            let path = store.reader().inclusion_path(Seq(leaf), size).unwrap();
            assert_eq!(
                path.concat(),
                tree.prove_inclusion(leaf as usize).as_bytes()
            );
            let path = store.reader().consistency_path(leaf + 1, size).unwrap();
            let expected = tree.prove_consistency((size - leaf - 1) as usize);
            assert_eq!(path.concat(), expected.as_bytes());
        }
    }
}

#[test]
fn files_are_those_of_the_standard() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = TileStore::open(folder.path(), &Frontier::empty()).unwrap();
    store.append(&leaves(0, 70_000)).unwrap();
    store.append(&leaves(70_000, 70_001)).unwrap();
    assert_eq!(store.size(), 70_001);
    let prefix = format!("{}/", folder.path().display());
    let names: Vec<String> = files(folder.path())
        .iter()
        .map(|name| name.replace(&prefix, ""))
        .collect();
    // 70,001 = 273 x 256 + 113; 273 = 256 + 17.
    let mut expected: Vec<String> = (0..273).map(|n| format!("tiles/tile/0/{n:03}")).collect();
    expected.push("tiles/tile/0/273.p/113".to_owned());
    expected.extend(
        [
            "tiles/tile/1/000",
            "tiles/tile/1/001.p/17",
            "tiles/tile/2/000.p/1",
        ]
        .map(str::to_owned),
    );
    expected.sort();
    assert_eq!(names, expected);
    let bytes = fs::read(folder.path().join("tiles/tile/0/273.p/113")).unwrap();
    assert_eq!(bytes, leaves(273 * 256, 70_001).concat());
    let bytes = fs::read(folder.path().join("tiles/tile/1/000")).unwrap();
    assert_eq!(
        (bytes.len(), &bytes[..32]),
        (8192, &frontier(256).root()[..])
    );
    check(store.reader(), 70_001);
    // An earlier tree is in the same tiles.
    check(store.reader(), 65_537);
    check(store.reader(), 300);
}

#[test]
fn goes_on_where_a_frontier_says_and_notices_what_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = TileStore::open(folder.path(), &Frontier::empty()).unwrap();
    store.append(&leaves(0, 1000)).unwrap();
    drop(store);
    // The chain's newest known point lies before what the tiles have.
    let mut store = TileStore::open(folder.path(), &frontier(900)).unwrap();
    assert_eq!(store.size(), 900);
    store.append(&leaves(900, 1300)).unwrap();
    check(store.reader(), 1300);
    drop(store);
    // Ahead of them, or of another chain: all of it again.
    assert_eq!(
        TileStore::open(folder.path(), &frontier(1400))
            .unwrap()
            .size(),
        0
    );
    let mut other = Frontier::empty();
    (0..900).for_each(|n| other.push([n as u8; 32]));
    let mut store = TileStore::open(folder.path(), &other).unwrap();
    assert_eq!(store.size(), 0);
    // A shorter tree of another chain over the tiles of a longer one.
    let foreign: Vec<Hash> = (0..1100).map(|n| [n as u8; 32]).collect();
    store.append(&foreign).unwrap();
    let mut expected = Frontier::empty();
    foreign.iter().for_each(|leaf| expected.push(*leaf));
    assert_eq!(store.reader().root(1100).unwrap(), expected.root());
    drop(store);

    let reader = TileReader::open(folder.path()).unwrap();
    let inner = folder.path().join("tiles/tile/0/001");
    fs::write(&inner, &fs::read(&inner).unwrap()[..8000]).unwrap();
    let cut = reader.inclusion_path(Seq(300), 1100);
    assert!(matches!(cut, Err(TileError::Lost { level: 0, index: 1 })));
    assert!(reader.inclusion_path(Seq(600), 1100).is_ok());
    for (leaf, size) in [(5, 5), (0, 0), (0, u64::MAX)] {
        let refused = reader.inclusion_path(Seq(leaf), size);
        assert!(matches!(refused, Err(TileError::Bounds { .. })));
    }
    assert!(matches!(
        reader.inclusion_path(Seq(0), 5000),
        Err(TileError::Lost { .. })
    ));
    assert!(matches!(
        reader.consistency_path(0, 5),
        Err(TileError::Bounds { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_batches_and_reopenings_make_the_same_tiles(
        batches in proptest::collection::vec((1_u64..700, any::<bool>()), 1..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = TileStore::open(folder.path(), &Frontier::empty()).unwrap();
        for (len, reopen) in batches {
            let size = store.size();
            store.append(&leaves(size, size + len)).unwrap();
            if reopen {
                store = TileStore::open(folder.path(), &frontier(size + len)).unwrap();
                prop_assert_eq!(store.size(), size + len);
            }
        }
        check(store.reader(), store.size());
        let once = tempfile::tempdir().unwrap();
        let mut whole = TileStore::open(once.path(), &Frontier::empty()).unwrap();
        whole.append(&leaves(0, store.size())).unwrap();
        let tree = |folder: &Path| -> Vec<(String, Vec<u8>)> {
            let prefix = folder.to_str().unwrap().to_owned();
            files(folder).iter().map(|name| (name.replace(&prefix, ""), fs::read(name).unwrap())).collect()
        };
        prop_assert_eq!(tree(folder.path()), tree(once.path()));
    }
}
