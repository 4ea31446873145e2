//! Decoding of tokens to text, for the vocabularies that are part of this program.

use tiktoken_rs::CoreBPE;

use crate::error::CliError;

pub(super) struct Vocabulary {
    /// `None` when tokens are bytes.
    bpe: Option<CoreBPE>,
    pub(super) end: u32,
}

impl Vocabulary {
    /// Returns the vocabulary for the stream's tokenizer name, in which the form of slices may follow after
    /// `;`.
    pub(super) fn for_tokenizer(name: &str) -> Result<Self, CliError> {
        let name = name.split(';').next().unwrap_or_default();
        let (bpe, end) = match name {
            "bytes" => (None, 256),
            "gpt2" => (Some(tiktoken_rs::r50k_base()), 50_256),
            "cl100k_base" => (Some(tiktoken_rs::cl100k_base()), 100_257),
            "o200k_base" => (Some(tiktoken_rs::o200k_base()), 199_999),
            other => {
                return Err(CliError::Usage(format!(
                    "--decode: the tokens are of {other:?}, and this program has the vocabularies bytes, gpt2, cl100k_base \
                     and o200k_base; decode what --values prints with your own"
                )));
            }
        };
        let bpe = bpe.transpose();
        let bpe = bpe.map_err(|e| CliError::Unsound(format!("the vocabulary {name}: {e}")))?;
        Ok(Self { bpe, end })
    }

    /// Decodes tokens; a character that a row boundary cuts becomes U+FFFD.
    pub(super) fn text(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            match (&self.bpe, u8::try_from(token)) {
                _ if token == self.end => bytes.extend_from_slice(b"<|endoftext|>"),
                (None, Ok(byte)) => bytes.push(byte),
                (Some(bpe), _) => match bpe.decode_bytes(&[token]) {
                    Ok(word) => bytes.extend(word),
                    Err(_) => bytes.extend_from_slice(format!("<{token}?>").as_bytes()),
                },
                (None, Err(_)) => bytes.extend_from_slice(format!("<{token}?>").as_bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
