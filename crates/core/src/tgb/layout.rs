//! A slice's payload: a safetensors file of fixed layout, with its array data 64-byte aligned.
//!
//! All slices of a stream whose arrays have the same names, types and shapes have the same header bytes:
//! readers parse it once.

use bytes::Bytes;
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use super::ALIGN_BYTES;
use crate::limits::OBJECT_BYTES_MAX;

/// The most bytes of a header; a longer one is refused before it is parsed.
const HEADER_BYTES_MAX: usize = 64 << 10;
const NAMES_RESERVED: [&str; 2] = ["__metadata__", ""];

macro_rules! dtypes {
    ($($name:ident $bytes:literal),+) => {
        /// Type of an array's items; the names are those of safetensors.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Dtype { $($name),+ }

        impl Dtype {
            /// All supported item types.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the bytes of one item.
            pub const fn bytes(self) -> u64 {
                match self { $(Self::$name => $bytes),+ }
            }

            /// Returns the name in a safetensors header.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            fn known(dtype: safetensors::Dtype) -> Option<Self> {
                match dtype { $(safetensors::Dtype::$name => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

dtypes!(BOOL 1, U8 1, I8 1, U16 2, I16 2, F16 2, BF16 2, U32 4, I32 4, F32 4, U64 8, I64 8, F64 8);

/// One array of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    pub name: String,
    /// Type of its items.
    pub dtype: Dtype,
    /// Its shape, in C order.
    pub shape: Vec<u64>,
    /// The offset of its data in the payload.
    pub offset: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

/// Names, types and shapes of a payload's arrays, in stored order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    arrays: Vec<Array>,
    header: Bytes,
    payload_bytes: u64,
}

/// A layout or a payload that breaks a rule of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No array at all.
    #[error("a slice holds at least one array")]
    Empty,
    /// A name that safetensors reserves.
    #[error("{0:?} can't be the name of an array")]
    Name(String),
    /// A name that occurs twice.
    #[error("two arrays are named {0:?}")]
    Duplicate(String),
    /// Larger than an object, or a header of more than 64 KiB.
    #[error("the layout is larger than the format allows")]
    TooLarge,
    /// An item type without an array type in readers.
    #[error("array {name:?}: item type {dtype} is not one of {}", Dtype::ALL.iter().map(|d| d.name()).collect::<Vec<_>>().join(", "))]
    Dtype { name: String, dtype: String },
    /// Not a safetensors file.
    #[error("the payload is not a safetensors file: {0}")]
    Unreadable(String),
    /// A safetensors file whose header is not byte by byte that of its layout.
    #[error(
        "the payload's header is not in the stored form (sorted, padded to {ALIGN_BYTES}, no metadata)"
    )]
    NotCanonical,
    /// Data of an array that is missing, unknown or of another size.
    #[error("array {name:?}: {found} bytes of data, the layout has {expected}")]
    Data {
        name: String,
        /// Its bytes by the layout; 0 if it is not in it.
        expected: u64,
        /// The bytes given; 0 without data.
        found: u64,
    },
    /// A token that the item type can't hold.
    #[error("token {token} does not fit in {dtype:?}: the vocabulary needs U32")]
    Token { token: u32, dtype: Dtype },
}

impl Layout {
    /// Returns the layout of these arrays (name, type, shape), in any order.
    pub fn new<N: Into<String>>(
        arrays: impl IntoIterator<Item = (N, Dtype, Vec<u64>)>,
    ) -> Result<Self, LayoutError> {
        let sized = |(name, dtype, shape): (N, Dtype, Vec<u64>)| {
            let items = shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
            let bytes = items.and_then(|n| n.checked_mul(dtype.bytes()));
            let bytes = bytes
                .filter(|&n| n <= OBJECT_BYTES_MAX)
                .ok_or(LayoutError::TooLarge)?;
            Ok(Array {
                name: name.into(),
                dtype,
                shape,
                offset: 0,
                bytes,
            })
        };
        let mut arrays = arrays
            .into_iter()
            .map(sized)
            .collect::<Result<Vec<_>, LayoutError>>()?;
        arrays.sort_by(|a, b| {
            b.dtype
                .bytes()
                .cmp(&a.dtype.bytes())
                .then(a.name.cmp(&b.name))
        });
        check_names(&arrays)?;
        let header = header(&arrays);
        if header.len() > HEADER_BYTES_MAX {
            return Err(LayoutError::TooLarge);
        }
        let mut end = header.len() as u64;
        for array in &mut arrays {
            array.offset = end;
            end = end.saturating_add(array.bytes);
        }
        if end > OBJECT_BYTES_MAX {
            return Err(LayoutError::TooLarge);
        }
        Ok(Self {
            arrays,
            header: header.into(),
            payload_bytes: end,
        })
    }

    /// Returns the standard layout of text: one array `tokens` of `rows` rows of `width` = seq_len + 1
    /// tokens, of which readers view inputs `[:, :-1]` and labels `[:, 1:]`.
    pub fn tokens(dtype: Dtype, rows: u64, width: u64) -> Result<Self, LayoutError> {
        Self::new([("tokens", dtype, vec![rows, width])])
    }

    /// Returns the arrays in stored order.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Returns the array of that name.
    pub fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.iter().find(|array| array.name == name)
    }

    /// Returns the safetensors header, its 8 bytes of length included; a multiple of 64 bytes.
    pub fn header(&self) -> Bytes {
        self.header.clone()
    }

    /// Returns the bytes of a payload.
    pub fn payload_len(&self) -> u64 {
        self.payload_bytes
    }

    /// Returns a payload with these arrays' data (little-endian, C order), given in any order.
    pub fn encode(&self, data: &[(&str, &[u8])]) -> Result<Vec<u8>, LayoutError> {
        if let Some((name, bytes)) = data.iter().find(|(name, _)| self.array(name).is_none()) {
            let (name, found) = ((*name).to_owned(), bytes.len() as u64);
            return Err(LayoutError::Data {
                name,
                expected: 0,
                found,
            });
        }
        let mut out = Vec::with_capacity(self.payload_bytes as usize);
        out.extend_from_slice(&self.header);
        for array in &self.arrays {
            let found = data
                .iter()
                .find(|(name, _)| *name == array.name)
                .map_or(&[][..], |d| d.1);
            if found.len() as u64 != array.bytes {
                let (name, expected) = (array.name.clone(), array.bytes);
                return Err(LayoutError::Data {
                    name,
                    expected,
                    found: found.len() as u64,
                });
            }
            out.extend_from_slice(found);
        }
        Ok(out)
    }

    /// Returns a payload whose arrays `fill` writes in place (initially zero, little-endian, C order).
    pub fn encode_with(
        &self,
        fill: impl FnMut(&Array, &mut [u8]) -> Result<(), LayoutError>,
    ) -> Result<Vec<u8>, LayoutError> {
        let mut out = vec![0; self.payload_bytes as usize];
        self.write(&mut out, fill)?;
        Ok(out)
    }

    /// Like `encode_with`, in `out`, which has room for exactly one payload and may hold anything: `fill`
    /// writes all of each array.
    pub fn write(
        &self,
        out: &mut [u8],
        mut fill: impl FnMut(&Array, &mut [u8]) -> Result<(), LayoutError>,
    ) -> Result<(), LayoutError> {
        if out.len() as u64 != self.payload_bytes {
            return Err(LayoutError::TooLarge);
        }
        let (header, mut rest) = out.split_at_mut(self.header.len());
        header.copy_from_slice(&self.header);
        for array in &self.arrays {
            let (data, after) = rest.split_at_mut(array.bytes as usize);
            fill(array, data)?;
            rest = after;
        }
        Ok(())
    }

    /// Returns a payload of the layout of [`Layout::tokens`].
    pub fn encode_tokens(&self, tokens: &[u32]) -> Result<Vec<u8>, LayoutError> {
        let dtype = self.array("tokens").map_or(Dtype::U32, |array| array.dtype);
        let mut data = Vec::with_capacity(tokens.len() * dtype.bytes() as usize);
        for &token in tokens {
            match (dtype, u16::try_from(token)) {
                (Dtype::U16, Ok(narrow)) => data.extend_from_slice(&narrow.to_le_bytes()),
                (Dtype::U32, _) => data.extend_from_slice(&token.to_le_bytes()),
                _ => return Err(LayoutError::Token { token, dtype }),
            }
        }
        self.encode(&[("tokens", &data)])
    }

    /// Parses a payload's layout and checks that it is in the stored form.
    pub fn parse(payload: &[u8]) -> Result<Self, LayoutError> {
        let header = payload.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
        if header > HEADER_BYTES_MAX as u64 {
            return Err(LayoutError::TooLarge);
        }
        let unreadable = |e: safetensors::SafeTensorError| LayoutError::Unreadable(e.to_string());
        let (_, found) = SafeTensors::read_metadata(payload).map_err(unreadable)?;
        let array = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
            let shape = info.shape.iter().map(|&d| d as u64).collect();
            match Dtype::known(info.dtype) {
                Some(dtype) => Ok((name, dtype, shape)),
                None => Err(LayoutError::Dtype {
                    name,
                    dtype: format!("{:?}", info.dtype),
                }),
            }
        };
        // Through a Vec: the map's order is random, the layout sorts.
        let arrays = found
            .tensors()
            .into_iter()
            .map(array)
            .collect::<Result<Vec<_>, _>>()?;
        let layout = Self::new(arrays)?;
        if !payload.starts_with(&layout.header) || payload.len() as u64 != layout.payload_bytes {
            return Err(LayoutError::NotCanonical);
        }
        Ok(layout)
    }
}

fn check_names(arrays: &[Array]) -> Result<(), LayoutError> {
    if arrays.is_empty() {
        return Err(LayoutError::Empty);
    }
    let mut names: Vec<_> = arrays.iter().map(|array| array.name.as_str()).collect();
    names.sort_unstable();
    if let Some(name) = names.iter().find(|name| NAMES_RESERVED.contains(name)) {
        return Err(LayoutError::Name((*name).to_owned()));
    }
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(LayoutError::Duplicate(pair[0].to_owned())),
        None => Ok(()),
    }
}

/// Returns length and JSON, padded with spaces so that the data is aligned.
fn header(arrays: &[Array]) -> Vec<u8> {
    let mut start = 0_u64;
    let entries = arrays.iter().map(|array| {
        let end = start.saturating_add(array.bytes);
        let name = serde_json::Value::from(array.name.as_str());
        let (dtype, shape) = (array.dtype.name(), &array.shape);
        let shape = shape
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let text = format!(
            r#"{name}:{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{start},{end}]}}"#
        );
        start = end;
        text
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let length = (8 + json.len()).next_multiple_of(ALIGN_BYTES as usize);
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(&(length as u64 - 8).to_le_bytes());
    out.extend_from_slice(json.as_bytes());
    out.resize(length, b' ');
    out
}

#[cfg(test)]
mod tests;
