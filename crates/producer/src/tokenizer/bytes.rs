//! Raw bytes: a token is a byte of the UTF-8 text.

use batchweave_core::ids::Hash;

use super::{Identity, Tokenizer, TokenizerError, identity};

const END: u32 = 256;

pub(super) struct Bytes(Identity);

impl Bytes {
    pub(super) fn new() -> Self {
        Self(identity("bytes", Hash::of(b"bytes, end 256"), END + 1, END))
    }
}

impl Tokenizer for Bytes {
    fn identity(&self) -> &Identity {
        &self.0
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(text.bytes().map(u32::from).collect())
    }
}
