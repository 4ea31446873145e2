//! Tokens of a slice as bytes.

use batchweave_core::tgb::{Dtype, LayoutError};

/// Writes the tokens of a row into `data`; the rest of a short row becomes zero.
pub(super) fn put_tokens(dtype: Dtype, tokens: &[u32], data: &mut [u8]) -> Result<(), LayoutError> {
    let bytes = (tokens.len() * dtype.bytes() as usize).min(data.len());
    data[bytes..].fill(0);
    if dtype == Dtype::U32 {
        for (token, bytes) in tokens.iter().zip(data.as_chunks_mut::<4>().0) {
            *bytes = token.to_le_bytes();
        }
        return Ok(());
    }
    // One OR over all tokens is fast; a search for the first too large one would double the time.
    if tokens.iter().fold(0, |all, token| all | token) > u32::from(u16::MAX) {
        let large = tokens.iter().find(|&&token| token > u32::from(u16::MAX));
        let token = large.copied().unwrap_or_default();
        return Err(LayoutError::Token { token, dtype });
    }
    for (token, bytes) in tokens.iter().zip(data.as_chunks_mut::<2>().0) {
        *bytes = (*token as u16).to_le_bytes();
    }
    Ok(())
}
