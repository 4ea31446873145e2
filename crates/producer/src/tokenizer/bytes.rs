//! Raw bytes: a token is a byte of the UTF-8 text.

use batchweave_core::ids::Hash;

use super::{Identity, Tokenizer, TokenizerError, identity};

const END: u32 = 256;

pub(super) struct Bytes {
    identity: Identity,
    specials: [(String, u32); 1],
}

impl Bytes {
    pub(super) fn new() -> Self {
        Self {
            identity: identity("bytes", Hash::sha256(b"bytes, end 256"), END + 1, END),
            specials: [("<|endoftext|>".to_owned(), END)],
        }
    }
}

impl Tokenizer for Bytes {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn specials(&self) -> &[(String, u32)] {
        &self.specials
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(text.bytes().map(u32::from).collect())
    }
}
