//! The rules of a model's normalizer: a double-array trie of the Darts library with the texts to replace, and the
//! table of replacements. The layout of its units is that of Darts-clone's `darts.h` (32 bits: label, whether a key
//! ends, offset of the children; or a value).
//!
//! Invariant: all reachable units are within the array, and all their values are texts of the table.

const VALUE: u32 = 1 << 31;

#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    /// Replacements, each ended by a zero byte.
    table: Vec<u8>,
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}

fn label(unit: u32) -> u32 {
    unit & (VALUE | 0xff)
}

fn key_ends(unit: u32) -> bool {
    unit & (1 << 8) != 0
}

impl Charsmap {
    /// Reads the rules. `None` for a model without any.
    pub(super) fn new(blob: &[u8]) -> Result<Option<Self>, String> {
        if blob.is_empty() {
            return Ok(None);
        }
        let cut = || {
            format!(
                "the normalizer's rules of {} bytes are cut or damaged",
                blob.len()
            )
        };
        let (size, rest) = blob.split_first_chunk::<4>().ok_or_else(cut)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, table) = rest.split_at_checked(size).ok_or_else(cut)?;
        let (units, odd) = trie.as_chunks::<4>();
        if units.is_empty() || !odd.is_empty() {
            return Err(cut());
        }
        let made = Self {
            units: units.iter().map(|u| u32::from_le_bytes(*u)).collect(),
            table: table.to_vec(),
        };
        made.check()?;
        Ok(Some(made))
    }

    /// Visits all reachable units.
    fn check(&self) -> Result<(), String> {
        let mut seen = vec![false; self.units.len()];
        let mut open = vec![0_usize];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let unit = self.units[at];
            let base = at ^ offset(unit);
            if key_ends(unit) {
                let value = self.units.get(base).map(|unit| (unit & !VALUE) as usize);
                let known = value.and_then(|value| self.replacement(value));
                if known.is_none_or(|text| std::str::from_utf8(text).is_err()) {
                    return Err(format!(
                        "the normalizer's rules are damaged: unit {at} of {} has no replacement",
                        self.units.len()
                    ));
                }
            }
            for byte in 0..=0xff_u32 {
                let child = base ^ byte as usize;
                if self
                    .units
                    .get(child)
                    .is_some_and(|unit| label(*unit) == byte)
                {
                    open.push(child);
                }
            }
        }
        Ok(())
    }

    fn replacement(&self, value: usize) -> Option<&[u8]> {
        let rest = self.table.get(value..)?;
        rest.get(..memchr::memchr(0, rest)?)
    }

    /// Returns the length of the longest rule that `text` begins with, and its replacement.
    pub(super) fn longest_rule(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let mut base = offset(*self.units.first()?);
        let mut longest = None;
        for (at, byte) in text.iter().enumerate() {
            let place = base ^ usize::from(*byte);
            let Some(unit) = self.units.get(place) else {
                break;
            };
            if label(*unit) != u32::from(*byte) {
                break;
            }
            base = place ^ offset(*unit);
            if key_ends(*unit) {
                longest = self.units.get(base).map(|value| (at + 1, value & !VALUE));
            }
        }
        let (length, value) = longest?;
        Some((length, self.replacement(value as usize)?))
    }
}
