//! The header of a .npy file, as `numpy.save` writes it: a magic number, a version, and a Python dictionary. Pure;
//! any bytes give a header or none.

/// The bytes that every .npy file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";
/// Most bytes of a header.
pub(crate) const HEADER_BYTES_MAX: usize = 1 << 20;

/// The type and the shape of the array in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    /// The type of an item in numpy's words, for example `<u2`; `None` for a type with fields.
    pub(crate) descr: Option<String>,
    /// Whether the first index changes fastest.
    pub(crate) columns_first: bool,
    /// The length of each dimension; `None` when it is not readable.
    pub(crate) shape: Option<Vec<u64>>,
    /// Offset of the first item in the file.
    pub(crate) data_at: u64,
}

/// Returns the offset of the first item by the first bytes of a file; `None` when it is not a .npy file, or when 12
/// bytes are not there.
pub(crate) fn data_at(file: &[u8]) -> Option<usize> {
    let rest = file.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_at_checked(2)?;
    let (before, length) = if version[0] == 1 {
        let length = rest.first_chunk::<2>()?;
        (10, usize::from(u16::from_le_bytes(*length)))
    } else {
        let length = rest.first_chunk::<4>()?;
        (12, usize::try_from(u32::from_le_bytes(*length)).ok()?)
    };
    Some(before + length).filter(|&at| at <= HEADER_BYTES_MAX)
}

/// Reads the header of `file`, which may go on after it.
pub(crate) fn header(file: &[u8]) -> Option<NpyHeader> {
    let at = data_at(file)?;
    let before = if file.get(6) == Some(&1) { 10 } else { 12 };
    let text = std::str::from_utf8(file.get(before..at)?).ok()?;
    Some(NpyHeader {
        descr: quoted(text, "descr").map(ToOwned::to_owned),
        columns_first: after(text, "fortran_order").is_some_and(|rest| rest.starts_with("True")),
        shape: shape(text),
        data_at: at as u64,
    })
}

/// Returns the text after the key in the dictionary.
fn after<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

fn quoted<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let rest = after(header, key)?.strip_prefix('\'')?;
    rest.split_once('\'').map(|(text, _)| text)
}

fn shape(header: &str) -> Option<Vec<u64>> {
    let rest = after(header, "shape")?.strip_prefix('(')?;
    let (list, _) = rest.split_once(')')?;
    let numbers = list.split(',').map(str::trim).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(version: u8, dictionary: &str) -> Vec<u8> {
        let mut file = [MAGIC, &[version, 0]].concat();
        if version == 1 {
            file.extend((dictionary.len() as u16).to_le_bytes());
        } else {
            file.extend((dictionary.len() as u32).to_le_bytes());
        }
        file.extend(dictionary.as_bytes());
        file
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in any::<bool>(), version in 0..4_u8,
        ) {
            if magic && bytes.len() > 12 {
                bytes[..6].copy_from_slice(MAGIC);
                bytes[6] = version;
                bytes[9..12].fill(0);
            }
            if let Some(found) = header(&bytes) {
                prop_assert!(found.data_at <= bytes.len() as u64);
            }
        }

        #[test]
        fn any_dictionary_is_read(
            shape in proptest::collection::vec(any::<u64>(), 0..4), order in any::<bool>(), version in 1..4_u8,
        ) {
            let numbers = shape.iter().map(|n| format!("{n},")).collect::<Vec<_>>().concat();
            let order_text = if order { "True" } else { "False" };
            let text = format!("{{'descr': '<u2', 'fortran_order': {order_text}, 'shape': ({numbers}), }}   \n");
            let found = header(&file(version, &text)).unwrap();
            prop_assert_eq!(found.shape, Some(shape));
            prop_assert_eq!(found.columns_first, order);
            prop_assert_eq!(found.descr.as_deref(), Some("<u2"));
        }
    }
}
