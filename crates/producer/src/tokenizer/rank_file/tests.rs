//! Rank files that are written here, compared with the libraries; one damage per error.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::tokenizer::{Choice, Encoding, load};

use super::*;

const END: &str = "<|endoftext|>";

fn line(token: &[u8], rank: u32) -> String {
    format!("{} {rank}\n", STANDARD.encode(token))
}

/// All bytes, and four merges.
fn small() -> String {
    let bytes = (0..=255_u8).map(|byte| line(&[byte], byte.into()));
    let merged: [&[u8]; 4] = [b"ab", b"abc", b" a", b"\xc3\xa9"];
    let merged = (256..).zip(merged).map(|(rank, token)| line(token, rank));
    bytes.chain(merged).collect()
}

fn special(tokens: &[(&str, u32)]) -> BTreeMap<String, u32> {
    let pairs = tokens.iter().map(|(text, id)| ((*text).to_owned(), *id));
    pairs.collect()
}

fn made(
    file: &str,
    pattern: &str,
    tokens: &[(&str, u32)],
    end_token: &str,
) -> Result<std::sync::Arc<dyn Tokenizer>, TokenizerError> {
    let folder = tempfile::tempdir().unwrap();
    // Llama 3's name.
    let path = folder.path().join("tokenizer.model");
    std::fs::write(&path, file).unwrap();
    let settings = RankSettings {
        pattern,
        special_tokens: &special(tokens),
    };
    load(&Choice::File {
        path: &path,
        settings,
        end_token,
    })
}

#[test]
fn a_rank_file_merges_by_rank_and_keeps_special_tokens_as_text() {
    let tokenizer = made(&small(), "cl100k_base", &[(END, 300)], "").unwrap();
    let identity = tokenizer.identity();
    assert_eq!((identity.end_token, identity.id_bound), (300, 301));
    assert!(identity.id.name.ends_with("/tokenizer.model"));
    let tokens = tokenizer.encode("abc aé").unwrap();
    assert_eq!(tokens, [257, 258, 259]);
    assert_eq!(tokenizer.decode(&[257, 258, 300]), format!("abc a{END}"));
    let spelt = tokenizer.encode(END).unwrap();
    assert!(!spelt.contains(&300), "{spelt:?}");
    assert_eq!(tokenizer.decode(&spelt), END);
}

/// The ranks of an encoding of the program as a file give its tokens, and the stored definition, read by the
/// tokenizers library, gives them too.
#[test]
fn a_file_of_embedded_ranks_gives_their_tokens() {
    let source = tiktoken_rs::r50k_base().unwrap();
    let file: String = (0..50_256)
        .map(|rank| line(&source.decode_bytes(&[rank]).unwrap(), rank))
        .collect();
    let ours = made(&file, "gpt2", &[(END, 50_256)], END).unwrap();
    let embedded = load(&Choice::Embedded(Encoding::Gpt2)).unwrap();
    let stored = ours.definition().unwrap();
    assert_eq!(Hash::sha256(&stored), ours.identity().id.fingerprint);
    let mut stored = tokenizers::Tokenizer::from_bytes(&stored).unwrap();
    stored.set_encode_special_tokens(true);
    for text in [SAMPLE, "It's  12345 naïve\n\n words <|endoftext|>", ""] {
        let tokens = ours.encode(text).unwrap();
        assert_eq!(tokens, embedded.encode(text).unwrap(), "{text:?}");
        assert_eq!(stored.encode(text, false).unwrap().get_ids(), tokens);
        assert_eq!(stored.decode(&tokens, false).unwrap(), text);
    }
}

#[test]
fn everything_that_decides_about_tokens_is_in_the_fingerprint() {
    let two = [(END, 300), ("<|a|>", 301)];
    let swapped = small().replace("YWI= 256", "YmE= 256");
    let all = [
        made(&small(), "cl100k_base", &two, END),
        made(&small(), "o200k_base", &two, END),
        made(&small(), "cl100k_base", &two[..1], END),
        made(&small(), "cl100k_base", &two, "<|a|>"),
        made(&swapped, "cl100k_base", &two, END),
    ]
    .map(|one| one.unwrap().identity().id.fingerprint.to_string());
    let different: HashSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len());
    // The bytes of the definition are a stored format.
    assert_eq!(
        all[0],
        "120702b5aa009cf15e186d9bf55b4b700fd5b395ab0d5c02e0afc14e03516b4d"
    );
}

/// Checks that a file with these settings is refused in one line with `expected`.
fn refused(file: &str, pattern: &str, tokens: &[(&str, u32)], end_token: &str, expected: &str) {
    let error = made(file, pattern, tokens, end_token).err();
    let why = error.map(|e| e.to_string()).unwrap_or_default();
    assert!(why.contains(expected), "{expected:?} in {why:?}");
    assert!(
        why.starts_with("tokenizer.") && !why.contains('\n'),
        "{why}"
    );
}

#[test]
fn each_damage_is_one_error_that_names_it() {
    let end = [(END, 300)];
    let file = small();
    let cut = &file[..file.len() - 4];
    let twice = format!("{file}{}", line(b"zz", 259));
    let again = format!("{file}{}", line(b"ab", 260));
    let hole = format!("{file}{}", line(b"zz", 261));
    let no_byte = file.replace(&line(b"\x07", 7), "");
    let text = format!("{file}not/base64! 260\n");
    for (damaged, expected) in [
        (cut, "line 260 is not"),
        (&text, "line 261 is not"),
        (&twice, "line 261 has the rank 259"),
        (&again, "line 261 has the token of line 257"),
        (&hole, "no line has the rank 260"),
        (&no_byte, "the byte 0x07"),
        ("", "is empty"),
        ("word\n", "of another format"),
        ("{}", "tokenizer.pattern: is for rank files"),
    ] {
        refused(damaged, "gpt2", &end, "", expected);
    }
    made(&hole, "gpt2", &[(END, 260)], "").unwrap();
}

#[test]
fn each_wrong_setting_is_one_error_that_names_it() {
    let end = [(END, 300)];
    let file = small();
    let of_others = "tokenizer.special_tokens: is for rank files";
    refused("{}", "", &end, "", of_others);
    for (pattern, expected) in [
        ("", "tokenizer.pattern: must be given"),
        ("(", "neither a name nor a regular expression"),
        (r"\w+", "leaves out characters"),
    ] {
        refused(&file, pattern, &end, "", expected);
    }
    refused(&file, "gpt2", &end, "<eos>", "has no \"<eos>\"");
    for (tokens, expected) in [
        (&[][..], "none of the usual end tokens"),
        (&[(END, 97)], "an id that is a rank"),
        (&[(END, 300), ("<b>", 300)], "the id of another"),
        (&[(END, 300), ("", 301)], "an empty text"),
    ] {
        refused(&file, "gpt2", tokens, "", expected);
    }
}
