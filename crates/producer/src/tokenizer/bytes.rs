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

    fn decode(&self, tokens: &[u32]) -> String {
        let pieces = tokens.split_inclusive(|token| *token >= END);
        let bytes = pieces.flat_map(|piece| {
            let bytes = piece.iter().filter_map(|token| u8::try_from(*token).ok());
            let ended = piece.last() == Some(&END);
            let end = if ended {
                self.specials[0].0.as_str()
            } else {
                ""
            };
            bytes.chain(end.bytes())
        });
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }
}
