//! No tokenizer: documents are token ids already.

use batchweave_core::ids::Hash;

use super::{Identity, Tokenizer, TokenizerError, identity};

pub(super) struct NoTokenizer(Identity);

impl NoTokenizer {
    pub(super) fn new(vocab_size: u32, end_token: u32) -> Self {
        let name = format!("ids below {vocab_size}, end {end_token}");
        let fingerprint = Hash::sha256(name.as_bytes());
        Self(identity(&name, fingerprint, vocab_size, end_token))
    }
}

impl Tokenizer for NoTokenizer {
    fn identity(&self) -> &Identity {
        &self.0
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Err(TokenizerError::Encode {
            bytes: text.len(),
            detail: "tokenizer.kind = \"none\" takes ids only".to_owned(),
        })
    }

    fn decode(&self, tokens: &[u32]) -> String {
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        ids.join(" ")
    }
}
