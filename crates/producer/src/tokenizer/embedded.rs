//! gpt2, cl100k_base and o200k_base: the ranks that tiktoken-rs embeds, encoded by fastokens.

use fastokens::TiktokenConfig;
use serde::{Deserialize, Serialize};
use tiktoken_rs::CoreBPE;

use batchweave_core::ids::Hash;
use batchweave_core::tokenizer::{Builtin, content};

use super::{Identity, Tokenizer, TokenizerError, identity};

/// An encoding that is part of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Encoding {
    /// The encoding of GPT-2, 50,257 tokens, which fit 16 bits.
    #[default]
    #[serde(rename = "gpt2")]
    Gpt2,
    /// The encoding of GPT-4, 100,277 tokens.
    #[serde(rename = "cl100k_base")]
    Cl100k,
    /// The encoding of GPT-4o, 200,019 tokens.
    #[serde(rename = "o200k_base")]
    O200k,
}

impl Encoding {
    /// Returns the name of the encoding in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Cl100k => "cl100k_base",
            Self::O200k => "o200k_base",
        }
    }

    /// Returns the number of mergeable ranks, the bound of all ids, and the end-of-text token.
    fn numbers(self) -> (u32, u32, u32) {
        match self {
            Self::Gpt2 => (50_256, 50_257, 50_256),
            Self::Cl100k => (100_256, 100_277, 100_257),
            Self::O200k => (199_998, 200_019, 199_999),
        }
    }

    fn config(self) -> TiktokenConfig {
        match self {
            Self::Gpt2 => {
                let specials = vec![("<|endoftext|>".to_owned(), 50_256)];
                TiktokenConfig::new(Builtin::Gpt2.pattern(), specials)
            }
            Self::Cl100k => TiktokenConfig::cl100k_base(),
            Self::O200k => TiktokenConfig::o200k_base(),
        }
    }

    fn source(self) -> Result<CoreBPE, String> {
        let made = match self {
            Self::Gpt2 => tiktoken_rs::r50k_base(),
            Self::Cl100k => tiktoken_rs::cl100k_base(),
            Self::O200k => tiktoken_rs::o200k_base(),
        };
        made.map_err(|e| e.to_string())
    }
}

pub(super) struct Embedded {
    identity: Identity,
    specials: [(String, u32); 1],
    inner: fastokens::Tokenizer,
    /// For texts with [`LONG_S`], which fastokens splits differently.
    exact: Option<CoreBPE>,
}

/// o200k's pattern ignores case in contractions, so this is an `'s` to it. Found by
/// `embedded_encodings_agree_with_tiktoken`.
const LONG_S: &str = "'\u{17f}";

impl Embedded {
    pub(super) fn new(encoding: Encoding) -> Result<Self, TokenizerError> {
        let broken = |detail| TokenizerError::Embedded {
            name: encoding.name(),
            detail,
        };
        let (count, id_bound, end_token) = encoding.numbers();
        let source = encoding.source().map_err(broken)?;
        let ranks = (0..count)
            .map(|rank| source.decode_bytes(&[rank]).map(|bytes| (bytes, rank)))
            .collect::<Result<Vec<(Vec<u8>, u32)>, _>>()
            .map_err(|e| broken(e.to_string()))?;
        let config = encoding.config();
        let fingerprint = fingerprint(&ranks, &config);
        let inner = fastokens::Tokenizer::from_tiktoken_ranks(&ranks, config)
            .map_err(|e| broken(e.to_string()))?;
        let identity = identity(encoding.name(), fingerprint, id_bound, end_token);
        let specials = [("<|endoftext|>".to_owned(), end_token)];
        Ok(Self {
            identity,
            specials,
            inner,
            exact: (encoding == Encoding::O200k).then_some(source),
        })
    }
}

fn fingerprint(ranks: &[(Vec<u8>, u32)], config: &TiktokenConfig) -> Hash {
    let tokens = ranks.iter().map(|(bytes, _)| bytes.as_slice());
    Hash::sha256(&content(&config.pattern, tokens))
}

impl Tokenizer for Embedded {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn specials(&self) -> &[(String, u32)] {
        &self.specials
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if let Some(exact) = &self.exact
            && text.contains(LONG_S)
        {
            return Ok(exact.encode_ordinary(text));
        }
        self.inner
            .encode_ordinary(text)
            .map_err(|e| TokenizerError::Encode {
                bytes: text.len(),
                detail: e.to_string(),
            })
    }

    fn decode(&self, tokens: &[u32]) -> String {
        self.inner.decode(tokens, false).unwrap_or_default()
    }
}
