//! A double-array trie: byte strings to numbers. The children of a node are at `base ^ byte`, and each knows its
//! parent, so a step costs one comparison.

/// No parent: the place is free. No value: no key ends at the node.
const NONE: u32 = u32::MAX;
/// The children of a node are within one block.
const BLOCK: usize = 256;
/// Blocks from the end that are searched for room; the earlier ones are nearly full.
const OPEN_BLOCKS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Unit {
    base: u32,
    parent: u32,
    value: u32,
}

const FREE: Unit = Unit {
    base: 0,
    parent: NONE,
    value: NONE,
};

/// The byte of a child, and the keys below it with their numbers.
type Child<'a> = (u8, &'a [(&'a [u8], u32)]);

#[derive(Debug)]
pub(super) struct Trie {
    units: Vec<Unit>,
}

/// A place in the trie: the bytes so far are the beginning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(u32);

pub(super) const ROOT: Node = Node(0);

impl Trie {
    /// Builds the trie. Of equal keys the last one counts; an empty key is left out.
    pub(super) fn new<'a>(keys: impl IntoIterator<Item = (&'a [u8], u32)>) -> Self {
        let mut keys: Vec<(&[u8], u32)> = keys.into_iter().filter(|(k, _)| !k.is_empty()).collect();
        keys.sort_by_key(|(key, _)| *key);
        let mut trie = Self { units: Vec::new() };
        let mut room = Room::default();
        room.add_block(&mut trie.units);
        // The root is at 0, and is its own parent: no step leads there.
        room.occupy(0);
        trie.units[0].parent = 0;
        let mut open = vec![(0_usize, 0_usize, keys.as_slice())];
        let mut children: Vec<Child<'_>> = Vec::new();
        while let Some((node, depth, mut below)) = open.pop() {
            while let Some((key, value)) = below.first()
                && key.len() == depth
            {
                trie.units[node].value = *value;
                below = &below[1..];
            }
            children.clear();
            for same in below.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]) {
                children.push((same[0].0[depth], same));
            }
            if children.is_empty() {
                continue;
            }
            let base = room.find(&mut trie.units, &children);
            trie.units[node].base = base as u32;
            for (byte, same) in &children {
                let child = base ^ usize::from(*byte);
                room.occupy(child);
                trie.units[child].parent = node as u32;
                open.push((child, depth + 1, same));
            }
        }
        trie
    }

    /// Returns the node after one more byte; `None` if no key continues so.
    #[inline]
    pub(super) fn step(&self, node: Node, byte: u8) -> Option<Node> {
        let at = self.units.get(node.0 as usize)?.base ^ u32::from(byte);
        let child = self.units.get(at as usize)?;
        (child.parent == node.0 && at != 0).then_some(Node(at))
    }

    /// Returns the number of the key that ends here.
    #[inline]
    pub(super) fn value(&self, node: Node) -> Option<u32> {
        let value = self.units.get(node.0 as usize)?.value;
        (value != NONE).then_some(value)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<u32> {
        let mut node = ROOT;
        for byte in key {
            node = self.step(node, *byte)?;
        }
        self.value(node)
    }

    /// Returns the length of the longest key that `text` begins with.
    pub(super) fn longest_prefix(&self, text: &[u8]) -> Option<usize> {
        let mut node = ROOT;
        let mut longest = None;
        for (at, byte) in text.iter().enumerate() {
            let Some(next) = self.step(node, *byte) else {
                break;
            };
            node = next;
            if self.value(node).is_some() {
                longest = Some(at + 1);
            }
        }
        longest
    }
}

/// The free places, as a list in the order of places.
#[derive(Default)]
struct Room {
    next: Vec<u32>,
    previous: Vec<u32>,
    first: Option<u32>,
    last: Option<u32>,
}

impl Room {
    fn add_block(&mut self, units: &mut Vec<Unit>) {
        // Only the newest blocks are searched for room: removes the free places of the older ones from the list.
        if let Some(closed) = (units.len() / BLOCK).checked_sub(OPEN_BLOCKS - 1) {
            while let Some(first) = self.first
                && (first as usize) < closed * BLOCK
            {
                self.occupy(first as usize);
            }
        }
        let start = units.len();
        units.resize(start + BLOCK, FREE);
        self.next.resize(start + BLOCK, NONE);
        self.previous.resize(start + BLOCK, NONE);
        for place in start as u32..units.len() as u32 {
            match self.last {
                Some(last) => self.next[last as usize] = place,
                None => self.first = Some(place),
            }
            self.previous[place as usize] = self.last.unwrap_or(NONE);
            self.last = Some(place);
        }
    }

    /// Returns a base that has room for all children.
    fn find(&mut self, units: &mut Vec<Unit>, children: &[Child<'_>]) -> usize {
        let lead = usize::from(children[0].0);
        let mut place = self.first;
        while let Some(free) = place {
            let base = free as usize ^ lead;
            let fits = |byte: u8| {
                let at = base ^ usize::from(byte);
                units[at].parent == NONE && at != 0
            };
            if children.iter().all(|(byte, _)| fits(*byte)) {
                return base;
            }
            place = Some(self.next[free as usize]).filter(|next| *next != NONE);
        }
        let base = units.len();
        self.add_block(units);
        base
    }

    fn occupy(&mut self, place: usize) {
        let next = self.next[place];
        let previous = self.previous[place];
        let unless_none = |place: u32| (place != NONE).then_some(place);
        match unless_none(previous) {
            Some(previous) => self.next[previous as usize] = next,
            None if self.first == Some(place as u32) => self.first = unless_none(next),
            None => {}
        }
        match unless_none(next) {
            Some(next) => self.previous[next as usize] = previous,
            None if self.last == Some(place as u32) => self.last = unless_none(previous),
            None => {}
        }
        self.next[place] = NONE;
        self.previous[place] = NONE;
    }
}
