//! The proof. It shares no code with the pipeline: it reads the source documents and the ranks' own files,
//! tokenizes with another library (bpe-openai), computes the order of documents and rows by itself (`order`, `share`),
//! packs according to docs/format.md, and compares every token of every rank at every step.
//!
//! In the order `arrival` the batches of producers interleave, so a step must equal the next batch of one
//! of the producers; at the end every batch of every producer must have occurred exactly once.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::DemoError;
use super::order::{self, DemoChange, DemoShuffle, DemoSource};
use super::shape::Shape;
use super::share::Share;

/// Differences between the ranks' files and the documents.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) steps: u64,
    pub(crate) tokens: u64,
    pub(crate) documents: u64,
    pub(crate) mismatches: u64,
    /// Descriptions of the first few.
    pub(crate) examples: Vec<String>,
}

impl Differences {
    fn wrong(&mut self, what: String) {
        self.mismatches += 1;
        if self.examples.len() < 5 {
            self.examples.push(what);
        }
    }
}

const END_OF_TEXT: u32 = 100_257;

/// The documents, and everything that decides their order.
#[derive(Debug)]
pub(crate) struct Documents {
    pub(crate) sources: Vec<DemoSource>,
    pub(crate) changes: Vec<DemoChange>,
    pub(crate) shuffle: DemoShuffle,
}

fn shares(documents: &Documents, shape: Shape) -> Result<Vec<Share>, DemoError> {
    let tokenizer = bpe_openai::cl100k_base();
    let tokenize = |line: &str| {
        let document: serde_json::Value =
            serde_json::from_str(line).map_err(|e| DemoError::Usage(format!("{line}: {e}")))?;
        let mut tokens = tokenizer.encode(document["text"].as_str().unwrap_or_default());
        tokens.push(END_OF_TEXT);
        Ok(tokens)
    };
    let share = |index| {
        let of = shape.producers;
        let Documents {
            sources,
            changes,
            shuffle,
        } = documents;
        let advance = shape.advance();
        let all = order::documents(sources, changes, *shuffle, index, of, advance, &tokenize)?;
        Ok(Share::new(&all, shape, *shuffle))
    };
    (0..shape.producers).map(share).collect()
}

/// Reads the records of one rank: step, slice, tokens.
fn read_rank(path: &Path) -> Result<Vec<(u64, u32, Vec<u32>)>, DemoError> {
    let file = fs::File::open(path).map_err(|e| DemoError::io("read", path, &e))?;
    let mut reader = BufReader::new(file);
    let mut records = Vec::new();
    let mut head = [0_u8; 16];
    loop {
        match reader.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(records),
            Err(e) => return Err(DemoError::io("read", path, &e)),
        }
        let (step, rest) = head.split_at(8);
        let (slice, length) = rest.split_at(4);
        let number = |b: &[u8]| {
            b.iter()
                .rev()
                .fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        let mut body = vec![0; number(length) as usize];
        reader
            .read_exact(&mut body)
            .map_err(|e| DemoError::io("read", path, &e))?;
        let token = |b: &[u8]| number(b) as u32;
        let tokens = body.chunks_exact(4).map(token).collect();
        records.push((number(step), number(slice) as u32, tokens));
    }
}

/// Compares the ranks' files with the documents, up to step `limit` if the ranks stopped there.
pub(crate) fn check(
    documents: &Documents,
    ranks: &[PathBuf],
    shape: Shape,
    limit: Option<u64>,
) -> Result<Differences, DemoError> {
    let mut shares = shares(documents, shape)?;
    let mut verdict = Differences::default();
    let mut got = Vec::new();
    for (rank, path) in ranks.iter().enumerate() {
        got.push(by_step(
            rank,
            read_rank(path)?,
            shape,
            ranks.len(),
            &mut verdict,
        ));
    }
    let steps = got.iter().map(Vec::len).max().unwrap_or(0);
    for step in 0..steps {
        let rows = rows_of_step(&got, step, &mut verdict);
        let found = shares.iter_mut().find(|share| share.is_next(&rows));
        match found {
            Some(share) => share.give(),
            None => verdict.wrong(format!("step {step} is not the next batch of any producer")),
        }
    }
    verdict.steps = steps as u64;
    verdict.tokens = steps as u64 * shape.advance() as u64;
    let left: usize = shares.iter().map(Share::left).sum();
    if limit.is_none_or(|limit| verdict.steps < limit) && left > 0 {
        verdict.wrong(format!("{left} batches of the documents never came"));
    }
    verdict.documents = shares.iter().map(Share::whole_documents).sum();
    Ok(verdict)
}

/// Returns the rows of a step, of all ranks in order.
fn rows_of_step<'a>(
    ranks: &'a [Vec<Vec<Vec<u32>>>],
    step: usize,
    verdict: &mut Differences,
) -> Vec<&'a [u32]> {
    let mut rows: Vec<&[u32]> = Vec::new();
    for (rank, slices) in ranks.iter().enumerate() {
        match slices.get(step) {
            Some(slices) => rows.extend(slices.iter().map(Vec::as_slice)),
            None => verdict.wrong(format!("rank {rank} did not get step {step}")),
        }
    }
    rows
}

/// Returns a rank's slices by step; each step must occur once, in order, with exactly the rank's slices.
fn by_step(
    rank: usize,
    records: Vec<(u64, u32, Vec<u32>)>,
    shape: Shape,
    ranks: usize,
    verdict: &mut Differences,
) -> Vec<Vec<Vec<u32>>> {
    let each = shape.slices / ranks;
    let mut steps: Vec<Vec<Vec<u32>>> = Vec::new();
    for (n, (step, slice, tokens)) in records.into_iter().enumerate() {
        let expected = ((n / each) as u64, (rank * each + n % each) as u32);
        if (step, slice) != expected {
            verdict.wrong(format!(
                "rank {rank} got (step, slice) {:?}, not {expected:?}",
                (step, slice)
            ));
        }
        if n % each == 0 {
            steps.push(Vec::new());
        }
        if let Some(slices) = steps.last_mut() {
            slices.push(tokens);
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        slices: 2,
        rows_per_slice: 1,
        seq_len: 4,
        producers: 1,
    };

    /// Returns a corpus of one document and the correct files of two ranks.
    fn scene(folder: &Path) -> (Documents, Vec<PathBuf>, Vec<u32>) {
        let text = "The quick brown fox jumps over the lazy dog, again and again, until evening.";
        let corpus = folder.join("documents-0.jsonl");
        fs::write(
            &corpus,
            format!("{}\n", serde_json::json!({ "text": text })),
        )
        .unwrap();
        let mut tokens = bpe_openai::cl100k_base().encode(text);
        tokens.push(END_OF_TEXT);
        let steps = (tokens.len() - 1) / 8;
        assert!(steps >= 2, "{} tokens", tokens.len());
        let ranks = [folder.join("rank-0"), folder.join("rank-1")].to_vec();
        for (rank, path) in ranks.iter().enumerate() {
            let row = |step| order::row_order(1, step, 2)[rank];
            let records = (0..steps).map(|s| (s as u64, rank as u32, s * 8 + row(s) * 4));
            write(
                path,
                records.map(|(s, slice, at)| (s, slice, tokens[at..at + 5].to_vec())),
            );
        }
        let documents = Documents {
            sources: vec![DemoSource {
                name: "text",
                files: vec![corpus],
                weight: 1,
            }],
            changes: Vec::new(),
            shuffle: DemoShuffle {
                seed: 1,
                window: 1,
                rows: 1,
            },
        };
        (documents, ranks, tokens)
    }

    fn write(path: &Path, records: impl Iterator<Item = (u64, u32, Vec<u32>)>) {
        let mut bytes = Vec::new();
        for (step, slice, tokens) in records {
            bytes.extend(step.to_le_bytes());
            bytes.extend(slice.to_le_bytes());
            bytes.extend((tokens.len() as u32 * 4).to_le_bytes());
            bytes.extend(tokens.iter().flat_map(|t| t.to_le_bytes()));
        }
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn accepts_what_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let (files, ranks, _) = scene(folder.path());
        let verdict = check(&files, &ranks, SHAPE, None).unwrap();
        assert_eq!(verdict.mismatches, 0, "{:?}", verdict.examples);
        assert!(verdict.steps >= 2);
    }

    #[test]
    fn catches_each_kind_of_wrong() {
        type Break = fn(&mut Vec<(u64, u32, Vec<u32>)>);
        let breaks: [(&str, Break); 5] = [
            ("a changed token", |r| r[1].2[3] ^= 1),
            ("a doubled step", |r| r.insert(1, r[0].clone())),
            ("a missing step", |r| drop(r.remove(0))),
            ("swapped steps", |r| r.swap(0, 1)),
            ("a lost end", |r| drop(r.pop())),
        ];
        for (what, break_it) in breaks {
            let folder = tempfile::tempdir().unwrap();
            let (files, ranks, _) = scene(folder.path());
            let mut records = read_rank(&ranks[1]).unwrap();
            break_it(&mut records);
            write(&ranks[1], records.into_iter());
            let verdict = check(&files, &ranks, SHAPE, None).unwrap();
            assert!(verdict.mismatches > 0, "{what}");
        }
    }

    #[test]
    fn catches_ranks_that_all_stop_early() {
        let folder = tempfile::tempdir().unwrap();
        let (files, ranks, _) = scene(folder.path());
        for path in &ranks {
            let mut records = read_rank(path).unwrap();
            records.pop();
            write(path, records.into_iter());
        }
        assert!(check(&files, &ranks, SHAPE, None).unwrap().mismatches > 0);
        assert_eq!(check(&files, &ranks, SHAPE, Some(1)).unwrap().mismatches, 0);
    }
}
