//! Variable-length numbers: seven bits per byte, the lowest first, the high bit on all but the last byte;
//! and zigzag encoding of signed steps.

pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The bytes that are not read yet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    /// Returns the next number; `None` when it is cut short, too large, or longer than necessary.
    pub(super) fn next(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Encodes the step from one number to the next: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4; `None` for the
/// widest steps.
pub(super) fn zigzag(from: u64, to: u64) -> Option<u64> {
    let step = to.checked_signed_diff(from)?;
    Some(((step << 1) ^ (step >> 63)).cast_unsigned())
}

/// Returns the number after a step; `None` when it is out of range.
pub(super) fn unzigzag(from: u64, step: u64) -> Option<u64> {
    let signed = (step >> 1).cast_signed() ^ -((step & 1).cast_signed());
    from.checked_add_signed(signed)
}
