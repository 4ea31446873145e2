//! Agreement with tiktoken and with Hugging Face's library, token for token: on random strings of difficult
//! characters, and on text found on the machine.
//!
//! With `BATCHWEAVE_LONG=1` 100,000 strings and 50 MB of text; `BATCHWEAVE_TEXT` names folders with other
//! text, separated by colons. `BATCHWEAVE_SEED` repeats a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tiktoken_rs::CoreBPE;

use super::*;

/// Ranges of characters of different classes of pre-tokenizers.
const RANGES: [(u32, u32); 22] = [
    (0x20, 0x7e),
    (0x30, 0x39),
    (0x41, 0x5a),
    (0x61, 0x7a),
    (0x00, 0x1f),
    (0x80, 0xff),
    (0x100, 0x24f),
    (0x300, 0x36f),
    (0x370, 0x3ff),
    (0x400, 0x4ff),
    (0x590, 0x5ff),
    (0x600, 0x6ff),
    (0x900, 0x97f),
    (0xe00, 0xe7f),
    (0x1680, 0x1680),
    (0x2000, 0x206f),
    (0x2150, 0x218b),
    (0x3000, 0x30ff),
    (0x4e00, 0x9fff),
    (0xac00, 0xd7a3),
    (0x1_f300, 0x1_faff),
    (0x1_0000, 0x10_ffff),
];
const PIECES: [&str; 18] = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "'s",
    "'LL",
    "'ſ",
    "İ",
    "ß",
    "12345",
    "٣",
    "<|endoftext|>",
    "<|im_start|>",
    "\u{200d}",
    "\u{fe0f}",
    "\u{2028}",
    "...",
];

fn drawn(random: &mut StdRng) -> String {
    let mut text = String::new();
    for _ in 0..random.random_range(0..24) {
        if random.random_ratio(1, 3) {
            text.push_str(PIECES.choose(random).unwrap());
            continue;
        }
        let (first, last) = *RANGES.choose(random).unwrap();
        for _ in 0..random.random_range(1..6) {
            let character = random.random_range(first..=last);
            text.extend(char::from_u32(character));
        }
    }
    text
}

fn is_long() -> bool {
    std::env::var("BATCHWEAVE_LONG").is_ok_and(|v| v == "1")
}

/// Returns text of the machine in pieces; invalid bytes are replaced.
fn found(at_most: usize) -> Vec<String> {
    let folders = std::env::var("BATCHWEAVE_TEXT").unwrap_or_else(|_| {
        "/usr/share/locale:/usr/share/i18n:/usr/share/doc:/usr/share/perl:/usr/lib/python3:/usr/lib"
            .into()
    });
    let mut open: Vec<PathBuf> = folders.split(':').rev().map(PathBuf::from).collect();
    let mut texts = Vec::new();
    let mut bytes = 0;
    while let Some(path) = open.pop() {
        if bytes >= at_most {
            break;
        }
        if path.is_symlink() {
            continue;
        }
        if let Ok(entries) = std::fs::read_dir(&path) {
            let mut entries: Vec<_> = entries.flatten().map(|e| e.path()).collect();
            entries.sort();
            open.extend(entries.into_iter().rev());
            continue;
        }
        let Ok(content) = std::fs::read(&path) else {
            continue;
        };
        for piece in content.chunks(1 << 16) {
            let text = String::from_utf8_lossy(piece);
            // Programs and archives are left out.
            if text.matches('\u{fffd}').count() * 20 < text.chars().count() {
                bytes += text.len();
                texts.push(text.into_owned());
            }
        }
    }
    texts
}

/// Returns the texts of the comparison.
fn texts() -> Vec<String> {
    let given = std::env::var("BATCHWEAVE_SEED").ok();
    let seed = given
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(rand::random);
    let (strings, bytes) = if is_long() {
        (100_000, 50 << 20)
    } else {
        (2_000, 1 << 20)
    };
    let mut random = StdRng::seed_from_u64(seed);
    // Found once: a contraction with a long s.
    let mut all = vec!["a dog'ſ, '\u{17f}'LLaevno".to_owned()];
    all.extend((0..strings).map(|_| drawn(&mut random)));
    all.extend(found(bytes));
    let size: usize = all.iter().map(String::len).sum();
    println!("seed {seed}: {} texts, {size} bytes", all.len());
    if is_long() {
        assert!(
            size > bytes,
            "only {size} bytes of text: set BATCHWEAVE_TEXT"
        );
    }
    all
}

#[track_caller]
fn same(name: &str, text: &str, ours: &[u32], theirs: &[u32]) {
    if ours == theirs {
        return;
    }
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    panic!(
        "{name}: token {at} is {:?}, theirs {:?}, in {text:?}",
        ours.get(at),
        theirs.get(at)
    );
}

#[test]
fn embedded_encodings_agree_with_tiktoken() {
    let oracles: [(Encoding, CoreBPE); 3] = [
        (Encoding::Gpt2, tiktoken_rs::r50k_base().unwrap()),
        (Encoding::Cl100k, tiktoken_rs::cl100k_base().unwrap()),
        (Encoding::O200k, tiktoken_rs::o200k_base().unwrap()),
    ];
    let texts = texts();
    for (encoding, oracle) in oracles {
        let ours = load(&Choice::Embedded(encoding)).unwrap();
        for text in &texts {
            let theirs = oracle.encode_ordinary(text);
            same(encoding.name(), text, &ours.encode(text).unwrap(), &theirs);
        }
    }
}

/// Returns the characters that stand for bytes in a tokenizer.json of the byte-level kind.
fn byte_characters() -> Vec<char> {
    let printed = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    (0..=255)
        .map(|byte| {
            let code = if printed(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap()
        })
        .collect()
}

/// Returns the two parts that a token was merged from: the rest after all earlier merges.
fn parents(token: &[u8], ranks: &BTreeMap<Vec<u8>, u32>) -> (Vec<u8>, Vec<u8>) {
    let mut parts: Vec<Vec<u8>> = token.iter().map(|b| vec![*b]).collect();
    while parts.len() > 2 {
        let rank = |i: usize| ranks.get(&parts[i..i + 2].concat());
        let ranked = (0..parts.len() - 1).filter(|i| rank(*i).is_some());
        let at = ranked.min_by_key(|i| rank(*i)).unwrap();
        let right = parts.remove(at + 1);
        parts[at].extend(right);
    }
    let right = parts.pop().unwrap();
    (parts.pop().unwrap(), right)
}

/// Returns GPT-2's tokenizer as a tokenizer.json, made of tiktoken's ranks.
fn gpt2_file() -> String {
    let source = tiktoken_rs::r50k_base().unwrap();
    let tokens: Vec<Vec<u8>> = (0..50_256)
        .map(|rank| source.decode_bytes(&[rank]).unwrap())
        .collect();
    let ranks: BTreeMap<Vec<u8>, u32> = tokens.iter().cloned().zip(0..).collect();
    let characters = byte_characters();
    let spelt =
        |bytes: &[u8]| -> String { bytes.iter().map(|b| characters[*b as usize]).collect() };
    let mut vocab = serde_json::Map::new();
    let mut merges = Vec::new();
    for (rank, token) in tokens.iter().enumerate() {
        vocab.insert(spelt(token), rank.into());
        if token.len() > 1 {
            let (left, right) = parents(token, &ranks);
            merges.push(format!("{} {}", spelt(&left), spelt(&right)));
        }
    }
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 50_256, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    })
    .to_string()
}

#[test]
fn a_tokenizer_file_agrees_with_hugging_face() {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = &folder.path().join("tokenizer.json");
    std::fs::write(path, gpt2_file()).unwrap();
    let end_token = "<|endoftext|>";
    let ours = load(&Choice::File {
        path,
        settings: RankSettings::default(),
        end_token,
    })
    .unwrap();
    let mut oracle = tokenizers::Tokenizer::from_file(path).unwrap();
    // Special tokens in documents are text.
    oracle.set_encode_special_tokens(true);
    for text in texts() {
        let theirs = oracle.encode(text.as_str(), false).unwrap();
        let encoded = ours.encode(&text).unwrap();
        same("gpt2's tokenizer.json", &text, &encoded, theirs.get_ids());
    }
}
