//! The measured text, generated from a seed. Words follow Zipf's law, with new ones to the end as in real text, so that a
//! caching tokenizer is treated fairly. No two documents are alike.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use batchweave_console::CliError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FILES: usize = 8;
const SEED: u64 = 20_261_121;
/// Words known from the beginning; numbers and names are added on the way.
const WORDS: usize = 60_000;
const SYLLABLES: [&str; 40] = [
    "an", "ber", "con", "de", "en", "fi", "ger", "ha", "in", "ja", "ka", "lo", "ment", "no", "ou",
    "per", "qui", "re", "sion", "the", "ur", "ver", "wo", "xi", "ya", "za", "st", "ing", "er",
    "ed", "al", "tion", "ly", "ness", "pro", "sub", "é", "ö", "и", "中",
];

/// The documents, in JSONL files and in memory.
pub(in crate::bench) struct Text {
    folder: tempfile::TempDir,
    pub(in crate::bench) files: Vec<PathBuf>,
    pub(in crate::bench) documents: Vec<String>,
    pub(in crate::bench) bytes: u64,
}

impl Text {
    /// Makes about this much text.
    pub(in crate::bench) fn new(mib: u64) -> Result<Self, CliError> {
        let mut text = Self {
            folder: tempfile::tempdir()?,
            files: Vec::new(),
            documents: Vec::new(),
            bytes: 0,
        };
        let mut writer = Made::new();
        for n in 0..FILES as u64 {
            let path = text.folder().join(format!("made-up-{n}.jsonl"));
            let mut out = BufWriter::with_capacity(1 << 20, fs::File::create(&path)?);
            while text.bytes * (FILES as u64) < (mib << 20) * (n + 1) {
                let document = writer.document();
                let line = serde_json::json!({ "text": document, "id": text.documents.len() });
                writeln!(out, "{line}")?;
                text.bytes += document.len() as u64;
                text.documents.push(document);
            }
            out.flush()?;
            text.files.push(path);
        }
        Ok(text)
    }

    pub(in crate::bench) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

struct Made {
    random: StdRng,
    words: Vec<String>,
}

impl Made {
    fn new() -> Self {
        let mut made = Self {
            random: StdRng::seed_from_u64(SEED),
            words: Vec::new(),
        };
        made.words = (0..WORDS).map(|n| made.new_word(1 + n / 20_000)).collect();
        made
    }

    fn new_word(&mut self, least: usize) -> String {
        let syllables = self.random.random_range(least..least + 3);
        (0..syllables)
            .map(|_| SYLLABLES[self.random.random_range(0..SYLLABLES.len())])
            .collect()
    }

    /// Draws a word by Zipf's law: its probability falls with its rank.
    fn word(&mut self, out: &mut String) {
        let uniform: f64 = self.random.random();
        let rank = (WORDS as f64).powf(uniform) as usize - 1;
        match self.random.random_range(0..100) {
            0 => out.push_str(&self.random.random_range(0..100_000_u32).to_string()),
            1 => {
                let name = self.new_word(2);
                out.push_str(&name);
            }
            _ => out.push_str(self.words.get(rank).map_or("the", String::as_str)),
        }
    }

    fn document(&mut self) -> String {
        // Lengths from a note to a chapter, most of them short.
        let spread: f64 = self.random.random();
        let bytes = (200.0 * 200.0_f64.powf(spread)) as usize;
        let mut text = String::with_capacity(bytes + 64);
        while text.len() < bytes {
            self.word(&mut text);
            text.push_str(match self.random.random_range(0..60) {
                0 => ".\n\n",
                1 => ",\n",
                2..=4 => ". ",
                5..=7 => ", ",
                8 => " \"",
                9 => "\" ",
                _ => " ",
            });
        }
        text
    }
}
