//! All interleavings of a small system: instances of one producer that open, list files, grow their chains
//! and commit, fenced ones among them, beside a reclaimer that deletes by an older fold. No cursor, and no
//! list that may still be committed, ever lacks a link. Each deliberate mistake is found.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::*;

/// Bounds at which links are merged at once, so that chains leave links behind.
const FEW: LinkBounds = LinkBounds {
    fan: 2,
    bytes_max: 1 << 20,
};
const FILES_MAX: usize = 4;
const EPOCHS_MAX: u64 = 3;
const STEPS_MAX: usize = 11;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Links that the cursor does not name are deleted, even those that may still be committed.
    Unnamed,
    /// Links before the head are deleted.
    HeadOnly,
    /// The chain is of one fold, the cursor of another.
    MixedFolds,
    /// Ids do not depend on the opening, so that a later opening assumes that the link is stored.
    SharedLinks,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Instance {
    epoch: Epoch,
    list: Vec<u8>,
    /// Stored lists that are not committed yet, oldest first.
    heads: Vec<(LinkId, usize)>,
    links: Vec<LinkId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Fold {
    epoch: Epoch,
    cursor: Option<LinkId>,
    chain: BTreeSet<LinkId>,
    /// The listed links, and the epoch that stored each.
    listed: BTreeMap<LinkId, Epoch>,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct World {
    epoch: Epoch,
    cursor: Option<LinkId>,
    committed: Vec<u8>,
    instances: Vec<Instance>,
    store: BTreeMap<LinkId, Epoch>,
    reclaimer: Option<Fold>,
}

struct Model {
    mistake: Mistake,
    /// The bytes of every link ever created.
    bytes: BTreeMap<LinkId, Vec<u8>>,
}

fn files(list: &[u8]) -> Vec<PinnedFile> {
    let file = |n: &u8| PinnedFile::new(n.to_string(), 1, b"", b"");
    list.iter().map(file).collect()
}

impl Model {
    fn read(
        &self,
        world: &World,
        head: Option<LinkId>,
    ) -> Result<(Chain, Vec<PinnedFile>), LinkId> {
        let mut reader = ChainReader::new(head);
        while let Some(id) = reader.next() {
            if !world.store.contains_key(&id) {
                return Err(id);
            }
            reader.take(&self.bytes[&id], "k").unwrap();
        }
        Ok(reader.finish())
    }

    fn opening(&self, epoch: Epoch) -> (Epoch, Nonce) {
        let epoch = if self.mistake == Mistake::SharedLinks {
            0
        } else {
            epoch
        };
        (epoch, Nonce([0; 8]))
    }

    /// Returns the decision of `Reclaim::inputs`.
    fn is_dead(&self, world: &World, fold: &Fold, id: &LinkId) -> bool {
        let (epoch, cursor) = match self.mistake {
            Mistake::MixedFolds => (world.epoch, world.cursor),
            _ => (fold.epoch, fold.cursor),
        };
        let kept = match self.mistake {
            Mistake::HeadOnly => cursor == Some(*id),
            _ => fold.chain.contains(id),
        };
        let over = match self.mistake {
            Mistake::SharedLinks => fold.listed.get(id).is_some_and(|by| *by < epoch),
            _ => id.epoch < epoch,
        };
        let open = id.may_be_named(cursor.as_ref(), over);
        !kept && (!open || self.mistake == Mistake::Unnamed)
    }

    fn next(&mut self, world: &World) -> Vec<World> {
        let mut next = Vec::new();
        if world.epoch < EPOCHS_MAX {
            let mut opened = world.clone();
            opened.epoch += 1;
            let (chain, _) = self.read(world, world.cursor).expect("checked");
            opened.instances.push(Instance {
                epoch: opened.epoch,
                list: world.committed.clone(),
                heads: Vec::new(),
                links: chain.ids().collect(),
            });
            next.push(opened);
        }
        for n in 0..world.instances.len() {
            next.extend(self.grow(world, n));
            let heads = 0..world.instances[n].heads.len();
            next.extend(heads.filter_map(|head| commit(world, n, head)));
        }
        let (chain, _) = self.read(world, world.cursor).expect("checked");
        let mut folded = world.clone();
        folded.reclaimer = Some(Fold {
            epoch: world.epoch,
            cursor: world.cursor,
            chain: chain.ids().collect(),
            listed: if self.mistake == Mistake::SharedLinks {
                world.store.clone()
            } else {
                BTreeMap::new()
            },
        });
        next.push(folded);
        if let Some(fold) = &world.reclaimer {
            for id in world
                .store
                .keys()
                .filter(|id| self.is_dead(world, fold, id))
            {
                let mut deleted = world.clone();
                deleted.store.remove(id);
                next.push(deleted);
            }
        }
        next
    }

    /// Adds a file to the list of instance `n`, fenced or not.
    fn grow(&mut self, world: &World, n: usize) -> Option<World> {
        let mut grown = world.clone();
        let instance = &mut grown.instances[n];
        if instance.list.len() >= FILES_MAX {
            return None;
        }
        // The chain in its memory, even if its objects are deleted.
        let mut reader = ChainReader::new(instance.links.last().copied());
        while let Some(id) = reader.next() {
            reader.take(&self.bytes[&id], "k").unwrap();
        }
        let (mut chain, _) = reader.finish();
        instance.list.push(instance.list.len() as u8);
        let opening = self.opening(instance.epoch);
        let (head, made) = chain.grow_by(opening, &files(&instance.list), FEW);
        instance.links = chain.ids().collect();
        instance.heads.push((head, instance.list.len()));
        let epoch = instance.epoch;
        for (id, bytes) in made {
            self.bytes.insert(id, bytes);
            // A create-only put leaves an existing object as it is.
            grown.store.entry(id).or_insert(epoch);
        }
        Some(grown)
    }

    /// Checks the invariants; the error is the missing link.
    fn check(&self, world: &World) -> Result<(), LinkId> {
        let (_, list) = self.read(world, world.cursor)?;
        assert_eq!(list, files(&world.committed), "the fold of the chain");
        let current = world.instances.iter().filter(|i| i.epoch == world.epoch);
        for (head, _) in current.flat_map(|instance| &instance.heads) {
            self.read(world, Some(*head))?;
        }
        Ok(())
    }
}

/// Commits a list of the current instance; skips those before it.
fn commit(world: &World, n: usize, head: usize) -> Option<World> {
    let mut done = world.clone();
    let instance = &mut done.instances[n];
    if instance.epoch != world.epoch {
        return None;
    }
    let (head, files) = instance.heads.drain(..=head).next_back()?;
    done.committed = instance.list[..files].to_vec();
    done.cursor = Some(head);
    Some(done)
}

/// Returns the number of states, or the steps to the first wrong one.
fn explore(mistake: Mistake) -> Result<usize, usize> {
    let bytes = BTreeMap::new();
    let mut model = Model { mistake, bytes };
    let mut seen = HashSet::from([World::default()]);
    let mut last = vec![World::default()];
    for steps in 1..=STEPS_MAX {
        let mut new = Vec::new();
        for world in &last {
            for next in model.next(world) {
                if seen.insert(next.clone()) {
                    model.check(&next).map_err(|_| steps)?;
                    new.push(next);
                }
            }
        }
        last = new;
    }
    Ok(seen.len())
}

#[test]
fn no_list_that_is_needed_lacks_a_link_and_mistakes_are_found() {
    let states = explore(Mistake::None).expect("sound");
    assert!(states > 1_000, "{states} states");
    for mistake in [
        Mistake::Unnamed,
        Mistake::HeadOnly,
        Mistake::MixedFolds,
        Mistake::SharedLinks,
    ] {
        let found = explore(mistake);
        println!("{mistake:?}: after {found:?} steps; {states} states without");
        assert!(found.is_err(), "{mistake:?}");
    }
}
