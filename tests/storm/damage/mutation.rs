//! One byte of one object that is changed, missing or added.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};

#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Flip { at: usize, with: u8 },
    Cut { at: usize },
    Add { at: usize, byte: u8 },
}

#[derive(Debug, Clone)]
pub(super) struct Mutation {
    pub(super) key: String,
    pub(super) how: How,
}

/// Returns the class of a key: its first name, and for jobs and data the kind of object.
pub(super) fn class(key: &str) -> &'static str {
    let names: Vec<&str> = key.split('/').collect();
    match (names[0], names.get(3).copied().unwrap_or_default()) {
        ("stream.json", _) => "stream",
        ("log", _) => "log",
        ("data", _) if key.rsplit_once('.').is_some_and(|(_, kind)| kind == "tgb") => "data",
        ("data", _) => "provenance",
        ("jobs", "marks") => "mark",
        ("jobs", "progress") => "progress",
        ("jobs", name) if name.starts_with("ledger") => "ledger",
        ("jobs", _) => "job",
        ("snapshots", _) => "snapshot",
        ("index", _) => "segment",
        ("intents", _) => "intent",
        ("inputs", _) => "input list",
        _ => "other",
    }
}

/// Returns every key of a folder, in order.
pub(super) fn keys(root: &Path) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(root, &mut found);
    let key = |path: &PathBuf| path.strip_prefix(root).unwrap().display().to_string();
    let mut keys: Vec<String> = found.iter().map(key).collect();
    keys.retain(|key| !key.starts_with('.'));
    keys.sort();
    keys
}

/// Returns each object once and then again, those of rare classes more often, until there are
/// `count`. Classes alternate, so that the first few hundred cover each of them.
pub(super) fn draw(root: &Path, count: usize, seed: u64) -> Vec<Mutation> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut classes: Vec<(&str, Vec<String>)> = Vec::new();
    for key in keys(root) {
        let class = class(&key);
        match classes.iter_mut().find(|(name, _)| *name == class) {
            Some((_, keys)) => keys.push(key),
            None => classes.push((class, vec![key])),
        }
    }
    for (_, keys) in &mut classes {
        keys.shuffle(&mut rng);
    }
    let objects: usize = classes.iter().map(|(_, keys)| keys.len()).sum();
    let mut drawn = Vec::new();
    let mut round = 0;
    while drawn.len() < count {
        for (_, keys) in &classes {
            // Large classes take several turns per round, so that 40 rounds damage each of their
            // objects.
            let turns = if count < objects {
                1
            } else {
                keys.len().div_ceil(40)
            };
            for turn in 0..turns {
                let key = &keys[(round * turns + turn) % keys.len()];
                let size = fs::metadata(root.join(key)).unwrap().len() as usize;
                let lap = (round * turns + turn) / keys.len();
                let how = how(size, lap, &mut rng);
                drawn.push(Mutation {
                    key: key.clone(),
                    how,
                });
            }
        }
        round += 1;
    }
    drawn.truncate(count);
    drawn
}

/// Draws the damage: any byte the first time, then in turn the last, the first, one byte less, one
/// more.
fn how(size: usize, lap: usize, rng: &mut StdRng) -> How {
    let at = rng.random_range(0..size.max(1));
    let flip = |at, rng: &mut StdRng| {
        // Flips one bit as often as it does any other damage.
        let with = if rng.random() {
            1 << rng.random_range(0..8)
        } else {
            rng.random_range(1..=255)
        };
        How::Flip { at, with }
    };
    match lap % 6 {
        1 => flip(size.saturating_sub(1), rng),
        2 => flip(0, rng),
        3 => How::Cut {
            at: if rng.random() {
                size.saturating_sub(1)
            } else {
                at
            },
        },
        4 => How::Add {
            at: if rng.random() { size } else { at },
            byte: (rng.next_u32() & 0xff) as u8,
        },
        _ => flip(at, rng),
    }
}

impl Mutation {
    /// Replaces a file by its damaged content; other folders keep their links to the whole one.
    pub(super) fn apply(&self, root: &Path) {
        let path = root.join(&self.key);
        let mut bytes = fs::read(&path).unwrap();
        match self.how {
            How::Flip { at, with } => bytes[at] ^= with,
            How::Cut { at } => drop(bytes.remove(at)),
            How::Add { at, byte } => bytes.insert(at, byte),
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
}
