//! Tokens compared with other libraries; special tokens in a text are text.

use batchweave_core::tokenizer::Builtin;

use super::*;

const TEXTS: [&str; 9] = [
    "",
    "Hello, world! It's 2026.",
    "  leading, trailing  \n\n\tand\r\nbreaks   ",
    "naïve café — “quotes” … ½ ²",
    "日本語のテキストと한국어, العربية, עברית, ไทย",
    "👩‍👩‍👧‍👦 e\u{301} \u{200b} \u{0}",
    "fn main() { println!(\"{:?}\", 1_000_000u64 << 3); } // <- 12345678",
    "<|endoftext|> a <|fim_prefix|><|endofprompt|>",
    "I'LL you'Re HE'S don't  x'tent",
];

fn embedded(encoding: Encoding) -> Arc<dyn Tokenizer> {
    load(&Choice::Embedded(encoding)).unwrap()
}

#[test]
fn embedded_encodings_agree_with_their_oracles() {
    let gpt2 = tiktoken_rs::r50k_base().unwrap();
    let (cl100k, o200k) = (bpe_openai::cl100k_base(), bpe_openai::o200k_base());
    let long = TEXTS.concat().repeat(500);
    let tokenizers = [
        embedded(Encoding::Gpt2),
        embedded(Encoding::Cl100k),
        embedded(Encoding::O200k),
    ];
    for text in TEXTS.into_iter().chain([long.as_str()]) {
        let expected = [
            gpt2.encode_ordinary(text),
            cl100k.encode(text),
            o200k.encode(text),
        ];
        for (tokenizer, expected) in tokenizers.iter().zip(expected) {
            let name = &tokenizer.identity().id.name;
            assert_eq!(
                tokenizer.encode(text).unwrap(),
                expected,
                "{name}: {text:.60?}"
            );
        }
    }
    for (tokenizer, (bound, end)) in
        tokenizers
            .iter()
            .zip([(50_257, 50_256), (100_277, 100_257), (200_019, 199_999)])
    {
        let identity = tokenizer.identity();
        assert_eq!((identity.id_bound, identity.end_token), (bound, end));
    }
}

#[test]
fn fingerprints_differ_and_stay() {
    let names = [Encoding::Gpt2, Encoding::Cl100k].map(|e| embedded(e).identity().id.fingerprint);
    assert_ne!(names[0], names[1]);
    assert_eq!(names[0], embedded(Encoding::Gpt2).identity().id.fingerprint);
}

#[test]
fn the_constants_of_builtin_vocabularies_match_the_tokenizers() {
    for builtin in Builtin::ALL {
        let tokenizer = match builtin {
            Builtin::Bytes => load(&Choice::Bytes).unwrap(),
            Builtin::Gpt2 => embedded(Encoding::Gpt2),
            Builtin::Cl100k => embedded(Encoding::Cl100k),
            Builtin::O200k => embedded(Encoding::O200k),
        };
        let identity = tokenizer.identity();
        assert_eq!(identity.id.name, builtin.name());
        assert_eq!(
            identity.id.fingerprint.to_string(),
            builtin.fingerprint(),
            "{builtin:?}"
        );
        assert_eq!(
            (identity.id_bound, identity.end_token),
            (builtin.id_bound(), builtin.end_token())
        );
        assert!(identity.id.is_builtin());
    }
}

#[test]
fn decoding_gives_the_text_back_with_special_tokens() {
    let choices = [
        load(&Choice::Bytes).unwrap(),
        embedded(Encoding::Gpt2),
        embedded(Encoding::O200k),
    ];
    for tokenizer in choices {
        let end = tokenizer.identity().end_token;
        for text in TEXTS.into_iter().filter(|text| !text.contains("<|")) {
            let mut tokens = tokenizer.encode(text).unwrap();
            tokens.push(end);
            let name = &tokenizer.identity().id.name;
            let expected = format!("{text}<|endoftext|>");
            assert_eq!(tokenizer.decode(&tokens), expected, "{name}");
        }
    }
    let bytes = load(&Choice::Bytes).unwrap();
    assert_eq!(bytes.decode(&[97, 256, 0xc3]), "a<|endoftext|>\u{fffd}");
    let file = from_file(&file("ByteLevel"), "<|eos|>").unwrap();
    assert_eq!(file.decode(&[11, 10, 40]), "abcab<|eos|>");
}

#[test]
fn bytes_are_bytes() {
    let tokenizer = load(&Choice::Bytes).unwrap();
    assert_eq!(tokenizer.encode("aé").unwrap(), [97, 0xc3, 0xa9]);
    assert_eq!(
        (
            tokenizer.identity().id_bound,
            tokenizer.identity().end_token
        ),
        (257, 256)
    );
}

/// Returns a byte-level BPE of five merges, with special tokens at ids with a gap.
fn file(model: &str) -> String {
    let mut vocab: serde_json::Map<String, serde_json::Value> = serde_json::Map::new();
    for token in [
        "a", "b", "c", "Ġ", "<", "|", "e", "o", "s", ">", "ab", "abc",
    ] {
        vocab.insert(token.to_owned(), vocab.len().into());
    }
    serde_json::json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}, "padding": null,
        "added_tokens": [{"id": 40, "content": "<|eos|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": model, "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": ["a b", "ab c"]}
    })
    .to_string()
}

fn from_file(content: &str, end_token: &str) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, content).unwrap();
    load(&Choice::File {
        path: &path,
        settings: RankSettings::default(),
        end_token,
    })
}

#[test]
fn a_tokenizer_file_neither_truncates_nor_obeys_the_text() {
    let tokenizer = from_file(&file("ByteLevel"), "<|eos|>").unwrap();
    assert_eq!(
        (
            tokenizer.identity().end_token,
            tokenizer.identity().id_bound
        ),
        (40, 41)
    );
    assert!(tokenizer.identity().id.name.ends_with("/tokenizer.json"));
    assert_eq!(tokenizer.encode("abc ab").unwrap(), [11, 3, 10]);
    assert_eq!(tokenizer.encode("<|eos|>").unwrap(), [4, 5, 6, 7, 8, 5, 9]);
    let oracle: tokenizers::Tokenizer = file("ByteLevel").parse().unwrap();
    assert_eq!(oracle.encode("abcab", false).unwrap().get_ids(), [11, 10]);
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let table = [
        (from_file("{", ""), "is not usable"),
        (
            from_file("{\"model\":{\"type\":\"None\"}}", ""),
            "tokenizers says",
        ),
        (
            from_file(&file("ByteLevel"), "</eos>"),
            "has no token \"</eos>\"",
        ),
        (
            from_file(&file("ByteLevel"), ""),
            "none of the usual end tokens",
        ),
        (
            load(&Choice::File {
                path: Path::new("/nonexistent/t.json"),
                settings: RankSettings::default(),
                end_token: "",
            }),
            "/nonexistent/t.json can't be read",
        ),
    ];
    for (result, expected) in table {
        let why = result.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(
            why.contains(expected) && why.contains("; "),
            "{expected} in {why}"
        );
    }
}

#[test]
fn another_file_of_a_model_is_named_by_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.json");
    let why = |content: &str| {
        std::fs::write(&path, content).unwrap();
        let settings = RankSettings::default();
        let choice = Choice::File {
            path: &path,
            settings,
            end_token: "",
        };
        load(&choice)
            .err()
            .map(|why| why.to_string())
            .unwrap_or_default()
    };
    for (content, expected) in [
        (
            r#"{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"}"#,
            "is a tokenizer_config.json, which",
        ),
        (
            r#"{"chat_template": "x"}"#,
            "is a tokenizer_config.json, which",
        ),
        (
            r#"{"architectures": ["X"], "model_type": "x"}"#,
            "is the config.json of a model",
        ),
        (r#"{"bos_token": "<s>"}"#, "is a special_tokens_map.json"),
        (r#"{"a": 0, "b": 1}"#, "is a vocabulary without the rules"),
        (
            r#"{"text": "no tokenizer"}"#,
            "is JSON without the field \"model\"",
        ),
    ] {
        let why = why(content);
        let remedy = "; name the model's tokenizer.json, SentencePiece model or rank file";
        assert!(why.contains(expected) && why.contains(remedy), "{why}");
    }
    std::fs::write(folder.path().join("tokenizer.json"), file("ByteLevel")).unwrap();
    let why = why(r#"{"chat_template": "x"}"#);
    assert!(
        why.ends_with("/tokenizer.json, which is beside it"),
        "{why}"
    );
}

#[test]
fn fastokens_starts_no_threads_of_its_own() {
    load(&Choice::Bytes).unwrap();
    assert_eq!(fastokens::fanout::threads(), 1);
}
