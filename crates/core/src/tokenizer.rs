//! The tokenizer of a stream, as `stream.json` names it: whether it is one of the vocabularies that are part of
//! BatchWeave, and whether a `tokenizer.json` file is the one that made the tokens.
//!
//! A stream of plain rows has the fingerprint of its tokenizer. Where slices have another form (another packing, a
//! chat template), `stream.json` has `<name>; <form>`, and the fingerprint is the SHA-256 of
//! `<fingerprint of the tokenizer>; <form>`. So name and fingerprint of the stream alone decide whether a file fits.

mod content;
mod vocabulary;

use crate::error::FormatError;
use crate::ids::Hash;
use crate::stream::TokenizerId;

pub use content::content;
pub use vocabulary::id_bound;

/// A vocabulary that the programs have without a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// One token per byte.
    Bytes,
    Gpt2,
    Cl100k,
    O200k,
}

impl Builtin {
    /// All vocabularies of the programs, from the smallest on.
    pub const ALL: [Self; 4] = [Self::Bytes, Self::Gpt2, Self::Cl100k, Self::O200k];

    /// Returns the name in `stream.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Gpt2 => "gpt2",
            Self::Cl100k => "cl100k_base",
            Self::O200k => "o200k_base",
        }
    }

    /// Returns the bound of all ids.
    pub fn id_bound(self) -> u32 {
        match self {
            Self::Bytes => 257,
            Self::Gpt2 => 50_257,
            Self::Cl100k => 100_277,
            Self::O200k => 200_019,
        }
    }

    /// Returns the fingerprint of the tokenizer that the producer makes of it.
    pub fn fingerprint(self) -> &'static str {
        match self {
            Self::Bytes => "311e01e017063eac0fe3eea5c09d11fc7d5b82fa135fe991a382b98e0b53c809",
            Self::Gpt2 => "967aca92c2cda76de937e13c08836d179fc6f14a1497fd461a20383cfa607252",
            Self::Cl100k => "ecffb577511e0f6895147201f43d0c9403af4bb0827cc9f30f4f0be3130dbba0",
            Self::O200k => "93d97835ac247547918dd42cd53ce97f3fe5ebd454c70ade36330177c60f4189",
        }
    }

    /// Returns the token that ends a document.
    pub fn end_token(self) -> u32 {
        match self {
            Self::Bytes => 256,
            Self::Gpt2 => 50_256,
            Self::Cl100k => 100_257,
            Self::O200k => 199_999,
        }
    }
}

impl TokenizerId {
    /// Returns the name of the tokenizer alone, without the form of the slices.
    pub fn base_name(&self) -> &str {
        match self.name.rsplit_once("; ") {
            Some((base, _)) => base,
            None => &self.name,
        }
    }

    /// Returns the built-in vocabulary of that name. The fingerprint tells whether it made the tokens: a file may have
    /// the same name.
    pub fn builtin(&self) -> Option<Builtin> {
        let name = self.base_name();
        Builtin::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns whether a built-in vocabulary made the tokens, by name and fingerprint.
    pub fn is_builtin(&self) -> bool {
        let made = |one: Builtin| self.is_made_with(one.fingerprint());
        self.builtin().is_some_and(made)
    }

    /// Returns whether this is the identity of a stream made with the tokenizer of `fingerprint`, in hexadecimal.
    pub fn is_made_with(&self, fingerprint: &str) -> bool {
        let form = self.name.rsplit_once("; ").map(|(_, form)| form);
        let formed = |form| Hash::sha256(format!("{fingerprint}; {form}").as_bytes());
        self.fingerprint.to_string() == fingerprint || form.map(formed) == Some(self.fingerprint)
    }

    /// Checks that `bytes` are the `tokenizer.json` file that made the tokens. `key` is for messages.
    pub fn check_file(&self, bytes: &[u8], key: &str) -> Result<(), FormatError> {
        let found = Hash::sha256(bytes).to_string();
        if self.is_made_with(&found) {
            return Ok(());
        }
        let reason = format!(
            "damaged, or another tokenizer: its SHA-256 {found:.16} does not give the fingerprint {:.16} of {}",
            self.fingerprint.to_string(),
            self.name
        );
        Err(FormatError::rule(key, reason))
    }

    /// Returns the bound of all ids, where the name says it: of a built-in vocabulary, or of ids that came ready
    /// made (`ids below 1000, end 0`).
    pub fn named_id_bound(&self) -> Option<u32> {
        let ids = || {
            let rest = self.base_name().strip_prefix("ids below ")?;
            rest.split_once(", end ")?.0.parse().ok()
        };
        self.builtin().map(Builtin::id_bound).or_else(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, fingerprint: Hash) -> TokenizerId {
        TokenizerId {
            name: name.to_owned(),
            fingerprint,
        }
    }

    #[test]
    fn a_file_fits_a_stream_of_any_form_and_no_other_file_does() {
        let file = b"{\"model\": {}}";
        let own = Hash::sha256(file);
        let formed = Hash::sha256(format!("{own}; best_fit, loss_mask").as_bytes());
        for fits in [
            id("llama/tokenizer.json", own),
            id("a; b/tokenizer.json", own),
            id("a; b/tokenizer.json; best_fit, loss_mask", formed),
        ] {
            fits.check_file(file, "k").unwrap();
            let why = fits.check_file(b"{\"model\": {} }", "k").unwrap_err();
            assert!(why.to_string().contains("k: damaged, or another"), "{why}");
        }
        let other = id("llama/tokenizer.json; best_fit", formed);
        assert!(other.check_file(file, "k").is_err(), "another form");
    }

    #[test]
    fn names_tell_vocabularies_and_bounds() {
        let any = Hash([1; 32]);
        for one in Builtin::ALL {
            let formed = format!("{}; chat, loss_mask, template 0123abcd", one.name());
            for name in [one.name(), &formed] {
                assert_eq!(id(name, any).builtin(), Some(one));
                assert_eq!(id(name, any).named_id_bound(), Some(one.id_bound()));
            }
            assert!(one.end_token() < one.id_bound());
        }
        let ids = id("ids below 1000, end 7; best_fit", any);
        assert_eq!((ids.builtin(), ids.named_id_bound()), (None, Some(1000)));
        for name in ["gpt2/tokenizer.json", "none; arrays n I32[]", "ids below x"] {
            let other = id(name, any);
            assert_eq!((other.builtin(), other.named_id_bound()), (None, None));
        }
    }
}
