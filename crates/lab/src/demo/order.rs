//! The order of documents, computed a second time for the proof: written from docs/order.md, without the code of the
//! product. It knows what the demo uses: plain lines, windows as large as a group, shares by tokens, one pass.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::DemoError;

const BLOCK_BYTES: usize = 524_288;

/// A source of the demo's producers.
#[derive(Debug, Clone)]
pub(crate) struct DemoSource {
    pub(crate) name: &'static str,
    pub(crate) files: Vec<PathBuf>,
    /// Its weight in billionths.
    pub(crate) weight: u64,
}

/// A change of the mixture: the first batch of each producer, if it changes, and the weights in billionths.
#[derive(Debug, Clone)]
pub(crate) struct DemoChange {
    pub(crate) from: Vec<Option<u64>>,
    pub(crate) weights: Vec<u64>,
}

/// The settings that decide the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DemoShuffle {
    pub(crate) seed: u64,
    /// Bytes of a group of blocks.
    pub(crate) window: u64,
    /// Batches whose rows are permuted together.
    pub(crate) rows: usize,
}

/// A document: its tokens, the end token included.
pub(crate) type Document = Vec<u32>;

/// Returns the documents of producer `index` of `of` in their order, `advance` tokens being a batch.
pub(crate) fn documents(
    sources: &[DemoSource],
    changes: &[DemoChange],
    shuffle: DemoShuffle,
    index: usize,
    of: usize,
    advance: usize,
    tokenize: &impl Fn(&str) -> Result<Document, DemoError>,
) -> Result<Vec<Document>, DemoError> {
    let mut queues = Vec::new();
    for source in sources {
        let lines = source_order(source, shuffle, index, of)?;
        let all: Result<Vec<Document>, DemoError> =
            lines.iter().map(|line| tokenize(line)).collect();
        queues.push(all?.into_iter());
    }
    let mut weights: Vec<u64> = sources.iter().map(|source| source.weight).collect();
    let mut changes = changes
        .iter()
        .filter_map(|c| Some((c.from[index]?, &c.weights)));
    let mut change = changes.next();
    let mut given = vec![0_u64; sources.len()];
    let (mut all, mut taken) = (Vec::new(), 0);
    loop {
        // A batch is complete with its window, and that with the token after its last row.
        while let Some((from, new)) = change
            && taken > (from as usize).next_multiple_of(shuffle.rows) * advance
        {
            weights.clone_from(new);
            given.fill(0);
            change = changes.next();
        }
        let open = (0..queues.len()).filter(|n| queues[*n].len() > 0 && weights[*n] > 0);
        let Some(source) = least_given(open, &given, &weights) else {
            return Ok(all);
        };
        let Some(document) = queues[source].next() else {
            return Ok(all);
        };
        given[source] += document.len() as u64;
        taken += document.len();
        all.push(document);
    }
}

/// Returns the source that was given the least in relation to its weight.
fn least_given(open: impl Iterator<Item = usize>, given: &[u64], weights: &[u64]) -> Option<usize> {
    let less = |a: usize, b: usize| {
        u128::from(given[a]) * u128::from(weights[b])
            < u128::from(given[b]) * u128::from(weights[a])
    };
    open.reduce(|a, b| if less(b, a) { b } else { a })
}

/// Returns the lines of a source in the order of producer `index` of `of`.
fn source_order(
    source: &DemoSource,
    shuffle: DemoShuffle,
    index: usize,
    of: usize,
) -> Result<Vec<String>, DemoError> {
    let read =
        |path: &PathBuf| fs::read_to_string(path).map_err(|e| DemoError::io("read", path, &e));
    let texts = source
        .files
        .iter()
        .map(read)
        .collect::<Result<Vec<String>, DemoError>>()?;
    let blocks = blocks(&texts);
    let bytes: usize = texts.iter().map(String::len).sum();
    let mean = (bytes / blocks.len().max(1)).max(1) as u64;
    let open = (shuffle.window / mean).clamp(16, 1024) as usize;
    let positions = blocks.len().saturating_sub(index).div_ceil(of);
    let groups = positions.div_ceil(open);
    let order = key("blocks", &[shuffle.seed, 0], source.name);
    let mut all = Vec::new();
    for group in 0..groups {
        let range = group * positions / groups..(group + 1) * positions / groups;
        let mut lines = Vec::new();
        for position in range {
            let block = permuted(order, (index + position * of) as u64, blocks.len() as u64);
            for (file, range) in &blocks[block as usize] {
                lines.extend(lines_of(&texts[*file], range.clone()));
            }
        }
        let numbers = [shuffle.seed, 0, index as u64, group as u64, 0];
        shuffle_by(key("documents", &numbers, source.name), &mut lines);
        all.extend(lines.into_iter().map(str::to_owned));
    }
    Ok(all)
}

/// Returns the rows of the window that begins with batch `first`, in their order.
pub(crate) fn row_order(seed: u64, first: usize, rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    shuffle_by(key("rows", &[seed, first as u64], ""), &mut order);
    order
}

fn shuffle_by<T>(draws: Key, all: &mut [T]) {
    for n in (1..all.len()).rev() {
        let other = below(draw(draws, n as u64), n as u64 + 1);
        all.swap(n, other as usize);
    }
}

/// The parts of a block: ranges of bytes in files.
type Block = Vec<(usize, Range<usize>)>;

fn blocks(texts: &[String]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // The size of the last block, while small files may join it.
    let mut open: Option<usize> = None;
    for (file, text) in texts
        .iter()
        .enumerate()
        .filter(|(_, text)| !text.is_empty())
    {
        if text.len() > BLOCK_BYTES {
            let begins = (0..text.len()).step_by(BLOCK_BYTES);
            let ranges = begins.map(|begin| begin..(begin + BLOCK_BYTES).min(text.len()));
            blocks.extend(ranges.map(|range| vec![(file, range)]));
            open = None;
            continue;
        }
        let part = (file, 0..text.len());
        match (open, blocks.last_mut()) {
            (Some(size), Some(block)) if size + text.len() <= BLOCK_BYTES => {
                block.push(part);
                open = Some(size + text.len());
            }
            _ => {
                blocks.push(vec![part]);
                open = Some(text.len());
            }
        }
    }
    blocks
}

/// Returns the lines whose first byte lies in `range`.
fn lines_of(text: &str, range: Range<usize>) -> impl Iterator<Item = &str> {
    let mut begin = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let own = range.contains(&begin);
        begin += line.len();
        own.then(|| line.trim_end_matches('\n'))
    })
}

type Key = [u64; 4];

fn key(purpose: &str, numbers: &[u64], name: &str) -> Key {
    let mut hash = Sha256::new();
    hash.update(format!("batchweave order 1\n{purpose}\n"));
    for number in numbers.iter().chain(&[name.len() as u64]) {
        hash.update(number.to_le_bytes());
    }
    hash.update(name);
    let digest = hash.finalize();
    let word = |n: usize| {
        let bytes = digest[8 * n..8 * n + 8].iter().rev();
        bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    [word(0), word(1), word(2), word(3)]
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn draw(key: Key, n: u64) -> u64 {
    mix(key[0].wrapping_add(mix(key[1].wrapping_add(n))))
}

fn below(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

/// Returns the block at `position` of a pass of `count` blocks.
fn permuted(key: Key, position: u64, count: u64) -> u64 {
    if count <= 1 {
        return 0;
    }
    let bits = u64::BITS - (count - 1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let low = (1_u64 << half) - 1;
    let mut x = position;
    loop {
        let (mut left, mut right) = (x >> half, x & low);
        for k in key {
            (left, right) = (right, left ^ (mix(right.wrapping_add(k)) & low));
        }
        x = left << half | right;
        if x < count {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_has_each_block_once() {
        for count in [1, 2, 3, 47, 512] {
            let order = key("blocks", &[3, 0], "web");
            let mut all: Vec<u64> = (0..count).map(|n| permuted(order, n, count)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn blocks_are_pieces_of_large_files_and_runs_of_small_ones() {
        let small = "x".repeat(200_000);
        let large = "y".repeat(BLOCK_BYTES + 10);
        let texts = [small.clone(), small.clone(), small, large];
        let sizes: Vec<usize> = blocks(&texts)
            .iter()
            .map(|block| block.iter().map(|(_, range)| range.len()).sum())
            .collect();
        assert_eq!(sizes, [400_000, 200_000, BLOCK_BYTES, 10]);
    }

    #[test]
    fn a_line_belongs_to_the_block_of_its_first_byte() {
        let text = "ab\ncd\nef\n";
        assert_eq!(lines_of(text, 0..4).collect::<Vec<_>>(), ["ab", "cd"]);
        assert_eq!(lines_of(text, 4..9).collect::<Vec<_>>(), ["ef"]);
    }
}
