//! Documents that are longer than a row or a bin.

use super::DocumentTransform;
use crate::config::LongDocuments;
use crate::packing::Content;
use crate::sources::Reason;

impl DocumentTransform {
    /// Returns the content that a row or a bin can hold, and the number of tokens that were cut off. Longer ones are divided
    /// by the packer where the configuration allows it.
    pub(super) fn fitted(&self, content: Content) -> Result<(Content, u64), Reason> {
        let tokens = content.items();
        let has_arrays = !self.beside.arrays.is_empty();
        let Some((balancing, long)) = &self.balancing else {
            let most = self.shape.width() as u64;
            if tokens > most && has_arrays {
                return Err(Reason::LongerThanRow { tokens, most });
            }
            return Ok((content, 0));
        };
        let most = balancing.settings.tokens;
        if tokens <= u64::from(most) {
            return Ok((content, 0));
        }
        let why = match (&content, long) {
            (Content::Pair(_), _) => "both answers of a pair go into one bin",
            _ if has_arrays => "a document with arrays is never divided",
            (_, LongDocuments::Bad) => "packing.balanced.long is \"bad\"",
            (_, LongDocuments::Split) => return Ok((content, 0)),
            (_, LongDocuments::Truncate) => {
                return Ok((truncated(content, most), tokens - u64::from(most)));
            }
        };
        let what = match content {
            Content::Pair(_) => "pair",
            _ => "document",
        };
        Err(Reason::LongerThanBin {
            what,
            tokens,
            most: most.into(),
            why,
        })
    }
}

/// Returns the first tokens of a document. It does not end there, so it has no end token.
fn truncated(content: Content, most: u32) -> Content {
    let (mut tokens, mut learned) = match content {
        Content::Tokens(tokens) => (tokens, Vec::new()),
        Content::Turns(tokens, learned) => (tokens, learned),
        other => return other,
    };
    tokens.truncate(most as usize);
    learned.resize(tokens.len(), true);
    Content::Turns(tokens, learned)
}
