//! Models that are written here; one damage per error, and damage anywhere. The library itself is compared in
//! `python/tests/test_sentencepiece.py`.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::tokenizer::{Choice, RankSettings, load};

use super::*;

const UNIGRAM: u64 = 1;
const BPE: u64 = 2;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn content(number: u64, bytes: &[u8]) -> Vec<u8> {
    let head = [varint(number << 3 | 2), varint(bytes.len() as u64)].concat();
    [head.as_slice(), bytes].concat()
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn piece(text: &str, score: f32, usage: u64) -> Vec<u8> {
    let float = [vec![0x15], score.to_le_bytes().to_vec()].concat();
    let piece = [content(1, text.as_bytes()), float, number(3, usage)].concat();
    content(1, &piece)
}

/// Returns rules that replace `A` by `a` and `é` by a space: two blocks of units of a double array.
fn rules() -> Vec<u8> {
    let mut units = vec![0_u32; 512];
    let ends = 1 << 8;
    units[0] = 256 << 10;
    units[256 ^ 0x41] = 0x41 | ends | 1 << 10;
    units[256 ^ 0x41 ^ 1] = 1 << 31;
    // The first byte of é at 256 + 0xc3; the second one below it, in the first block.
    units[256 ^ 0xc3] = 0xc3 | (256 ^ 0xc3 ^ 0x80) << 10;
    units[0x80 ^ 0xa9] = 0xa9 | ends | 0x28 << 10;
    units[0x80 ^ 0xa9 ^ 0x28] = 1 << 31 | 2;
    let trie: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let size = (trie.len() as u32).to_le_bytes();
    [size.as_slice(), &trie, b"a\0 \0"].concat()
}

fn beginning() -> Vec<u8> {
    [
        piece("<unk>", 0.0, UNKNOWN),
        piece("<s>", 0.0, CONTROL),
        piece("</s>", 0.0, CONTROL),
    ]
    .concat()
}

fn file(pieces: &[(&str, f32, u64)], trainer: &[Vec<u8>], normalizer: &[Vec<u8>]) -> Vec<u8> {
    let encoded = pieces
        .iter()
        .map(|(text, score, usage)| piece(text, *score, *usage))
        .collect::<Vec<_>>()
        .concat();
    let specs = [
        content(2, &trainer.concat()),
        content(3, &normalizer.concat()),
    ];
    [beginning(), encoded, specs.concat()].concat()
}

fn made(file: &[u8], end_token: &str) -> Result<std::sync::Arc<dyn Tokenizer>, TokenizerError> {
    made_with(file, end_token, RankSettings::default())
}

fn made_with(
    file: &[u8],
    end_token: &str,
    settings: RankSettings<'_>,
) -> Result<std::sync::Arc<dyn Tokenizer>, TokenizerError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.model");
    std::fs::write(&path, file).unwrap();
    load(&Choice::File {
        path: &path,
        settings,
        end_token,
    })
}

/// Pieces from id 3 on.
const PIECES: [(&str, f32, u64); 8] = [
    ("▁", -2.0, 1),
    ("a", -3.0, 1),
    ("b", -3.0, 1),
    ("ab", -4.0, 1),
    ("▁ab", -5.0, 1),
    ("[X]", 0.0, USER_DEFINED),
    ("ba", -9.0, 1),
    ("bb", -1.0, UNUSED),
];

#[test]
fn unigram_takes_the_most_probable_pieces_and_merges_unknown_ones() {
    let model = file(&PIECES, &[number(3, UNIGRAM)], &[content(2, &rules())]);
    let tokenizer = made(&model, "").unwrap();
    for (text, expected) in [
        ("ab", vec![7]),
        ("  Ab  a ", vec![7, 3, 4]),
        ("abéab", vec![7, 7]),
        ("babb", vec![3, 5, 6, 5]),
        ("a[X]b", vec![3, 4, 8, 5]),
        ("zäa</s>", vec![3, 0, 4, 0]),
        ("", vec![]),
        (" é ", vec![]),
        ("\0", vec![3, 0]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), expected, "{text:?}");
    }
    let identity = tokenizer.identity();
    assert_eq!((identity.end_token, identity.id_bound), (2, 11));
    assert!(identity.id.name.ends_with("/tokenizer.model"));
    assert_eq!(tokenizer.decode(&[7, 3, 4, 2, 8, 0]), "ab a</s>[X]<unk>");
    assert_eq!(made(&model, "<s>").unwrap().identity().end_token, 1);
}

#[test]
fn bpe_merges_by_score_and_divides_unused_pieces() {
    let mut pieces = PIECES;
    // The best merge makes a piece that is not used, so its parts come out.
    pieces[6] = ("ba", -0.5, UNUSED);
    let model = file(&pieces, &[number(3, BPE)], &[number(3, 0)]);
    let tokenizer = made(&model, "").unwrap();
    for (text, expected) in [
        ("ab", vec![6]),
        ("bab", vec![5, 4, 5]),
        ("bb[X]ab ab", vec![5, 5, 8, 6, 7]),
        ("xab", vec![0, 6]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), expected, "{text:?}");
    }
}

fn bytes_model(kind: u64) -> Vec<u8> {
    let names: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let bytes = names.iter().map(|name| (name.as_str(), 0.0, BYTE));
    let pieces: Vec<_> = bytes.chain(PIECES).collect();
    let trainer = [number(3, kind), number(35, 1), number(24, 1)];
    file(&pieces, &trainer, &[content(2, &rules()), number(4, 0)])
}

#[test]
fn unknown_characters_become_bytes_and_readers_join_them() {
    for kind in [UNIGRAM, BPE] {
        let tokenizer = made(&bytes_model(kind), "").unwrap();
        let tokens = tokenizer.encode("aé ä").unwrap();
        // The space after the text is that of treat_whitespace_as_suffix.
        assert_eq!(tokens, [260, 259, 259, 3 + 0xc3, 3 + 0xa4, 259]);
        assert_eq!(tokenizer.decode(&tokens), "a  ä");
        assert_eq!(tokenizer.decode(&tokens[..4]), "a  \u{fffd}");
        let spelt = tokenizer.encode("<0x41>").unwrap();
        assert!(
            !spelt.contains(&(3 + 0x41)) && spelt.len() == 7,
            "{spelt:?}"
        );
    }
}

#[test]
fn the_model_and_the_end_token_are_in_the_fingerprint() {
    let model = file(&PIECES, &[], &[]);
    let all = [
        made(&model, ""),
        made(&model, "<s>"),
        made(&file(&PIECES, &[number(3, BPE)], &[]), ""),
        made(&file(&PIECES, &[], &[number(3, 0)]), ""),
    ]
    .map(Result::unwrap);
    let hashes: std::collections::HashSet<_> = (all.iter())
        .map(|one| one.identity().id.fingerprint.to_string())
        .collect();
    assert_eq!(hashes.len(), all.len());
    let stored = all[0].definition().unwrap();
    let fingerprint = all[0].identity().id.fingerprint;
    assert_eq!(Hash::sha256(&stored), fingerprint);
    assert_eq!(batchweave_core::tokenizer::id_bound(&stored), Some(11));
    // The bytes of the definition are a stored format.
    assert_eq!(
        fingerprint.to_string(),
        "66ef40dd5421940cf0306773adea08f67b844d665e2db07d12a3a1e5bc065ef2"
    );
}

#[test]
fn each_damage_is_one_error_that_names_it() {
    let model = file(&PIECES, &[], &[]);
    let with = |more: &[(&str, f32, u64)]| file(&[&PIECES, more].concat(), &[], &[]);
    let trained = |trainer: &[Vec<u8>]| file(&PIECES, trainer, &[]);
    let ruled = |rules: &[u8]| file(&PIECES, &[], &[content(2, rules)]);
    let mut wrong_trie = rules();
    // The value of the rule for `A`.
    wrong_trie[4 + 4 * 320] = 9;
    let no_table = &rules()[..4 + 4 * 512];
    let not_utf8 = [&rules()[..4 + 4 * 512], b"\xff\0 \0"].concat();
    let no_unknown = model[piece("<unk>", 0.0, UNKNOWN).len()..].to_vec();
    let no_control = &file(&PIECES, &[], &[])[beginning().len()..];
    let no_control = [piece("<unk>", 0.0, UNKNOWN), no_control.to_vec()].concat();
    let huge = [model.clone(), vec![0x22, 0xff, 0xff, 0xff, 0xff, 0x7f, 1]].concat();
    let group = [model.clone(), vec![0x23]].concat();
    for (file, end_token, expected) in [
        (model[..model.len() - 3].to_vec(), "", "is cut or damaged"),
        (model[..70].to_vec(), "", "is cut or damaged"),
        (huge, "", "is cut or damaged"),
        (group, "", "is cut or damaged"),
        (no_unknown, "", "none of its 10 pieces is the unknown one"),
        (no_control, "", "it has no control piece at all"),
        (
            model.clone(),
            "</t>",
            "no control piece \"</t>\"; write one of its 2: \"<s>\", \"</s>\"",
        ),
        (model.clone(), "ab", "no control piece \"ab\""),
        (
            with(&[("ab", -1.0, 1)]),
            "",
            "piece 11 is \"ab\", as piece 6 is",
        ),
        (with(&[("", -1.0, 1)]), "", "piece 11 is empty"),
        (with(&[("c", f32::NAN, 1)]), "", "\"c\", has the score NaN"),
        (with(&[("c", 0.0, 9)]), "", "its type is the unknown"),
        (with(&[("u", 0.0, UNKNOWN)]), "", "pieces 0 and 11 are both"),
        (with(&[("<0x00>", 0.0, BYTE)]), "", "byte_fallback is false"),
        (trained(&[number(35, 1)]), "", "no piece is <0x00>"),
        (trained(&[number(3, 7)]), "", "unknown model_type 7"),
        (ruled(&wrong_trie), "", "unit 321 of 512 has no replacement"),
        (ruled(no_table), "", "has no replacement"),
        (ruled(&not_utf8), "", "has no replacement"),
        (ruled(&rules()[..99]), "", "rules of 99 bytes are cut"),
        (ruled(b"\0\0\0\0a\0"), "", "rules of 6 bytes are cut"),
        (b"PK\x03\x04\xff".to_vec(), "", "of another format"),
    ] {
        let error = made(&file, end_token).err();
        let why = error.map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains(expected), "{expected:?} in {why:?}");
        assert!(
            why.starts_with("tokenizer.") && why.contains("; ") && !why.contains('\n'),
            "{why}"
        );
    }
    let settings = RankSettings {
        pattern: "gpt2",
        ..RankSettings::default()
    };
    let why = made_with(&model, "", settings).err().unwrap().to_string();
    assert!(why.contains("pattern: is for rank files"), "{why}");
}

/// Whatever the bytes of a model are, it is refused or encodes; a place out of range would panic.
#[test]
fn a_model_with_damage_anywhere_is_refused_or_encodes() {
    let mut random = StdRng::seed_from_u64(20_261_126);
    let whole = [
        file(&PIECES, &[number(3, UNIGRAM)], &[content(2, &rules())]),
        bytes_model(BPE),
        file(&PIECES, &[number(3, 4)], &[content(2, &rules())]),
    ];
    let mut usable = 0;
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut file = whole.choose(&mut random).unwrap().clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..file.len());
            match random.random_range(0..4) {
                0 => file[at] = random.random(),
                1 => file[at] ^= 1 << random.random_range(0..8),
                2 => file.truncate(at.max(1)),
                _ => drop(file.remove(at)),
            }
            if file.is_empty() {
                break;
            }
        }
        let encoder = Model::parse(&file).and_then(Encoder::new);
        if let Ok(encoder) = encoder {
            usable += 1;
            for text in ["  aAb\u{e9} [X]bab ä\u{0}", "▁▁<0x41></s>", "Ã©A"] {
                encoder.encode(text).unwrap();
            }
        } else {
            refused += 1;
        }
    }
    assert!(usable > 1000 && refused > 1000, "{usable}, {refused}");
}

/// Runs between places that are never merged over give what the whole text at once gives.
#[test]
fn bpe_in_runs_is_bpe_of_the_whole() {
    let mut random = StdRng::seed_from_u64(7);
    let letters = ["a", "b", "c", "d", "e", "é", "▁"];
    for _ in 0..300 {
        let mut drawn = |parts: usize| -> String {
            let letters = (0..parts).map(|_| *letters.choose(&mut random).unwrap());
            letters.collect()
        };
        let mut texts: Vec<String> = letters.map(str::to_owned).into();
        texts.extend((0..12).map(|at| drawn(2 + at % 3)));
        texts.sort();
        texts.dedup();
        let text = drawn(300);
        let scores = (0..).map(|at| -f32::from(at % 7_u8));
        let mut pieces: Vec<(&str, f32, u64)> = (texts.iter().zip(scores))
            .map(|(text, score)| (text.as_str(), score, 1))
            .collect();
        let encoded = |pieces: &[(&str, f32, u64)]| {
            let file = file(pieces, &[number(3, BPE)], &[number(3, 0)]);
            let encoder = Model::parse(&file).and_then(Encoder::new).unwrap();
            encoder.encode(&text).unwrap()
        };
        let in_runs = encoded(&pieces);
        // With an unused piece the text is one run.
        pieces.push(("\u{10ffff}\u{10fffe}", 0.0, UNUSED));
        assert_eq!(in_runs, encoded(&pieces), "{pieces:?} {text:?}");
    }
}

#[test]
fn a_trie_finds_its_keys_and_no_others() {
    let mut random = StdRng::seed_from_u64(3);
    let mut keys = std::collections::BTreeMap::new();
    for id in 0..40_000_u32 {
        let length = random.random_range(1..9);
        let wide = random.random_ratio(1, 4);
        let byte = |random: &mut StdRng| {
            if wide {
                random.random()
            } else {
                random.random_range(b'a'..b'e')
            }
        };
        let key: Vec<u8> = (0..length).map(|_| byte(&mut random)).collect();
        keys.entry(key).or_insert(id);
    }
    let trie = trie::Trie::new(keys.iter().map(|(key, id)| (key.as_slice(), *id)));
    for (key, id) in &keys {
        assert_eq!(trie.get(key), Some(*id));
        for end in 0..key.len() {
            assert_eq!(trie.get(&key[..end]), keys.get(&key[..end]).copied());
        }
        let other = [key.as_slice(), &[random.random()]].concat();
        assert_eq!(trie.get(&other), keys.get(&other).copied());
        assert!(trie.longest_prefix(&other).unwrap() >= key.len());
    }
}
