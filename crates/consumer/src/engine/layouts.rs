//! Layouts of payloads: parsed once for all frames with the same header, and numbered per session.

use std::collections::VecDeque;
use std::sync::Arc;

use batchweave_core::tgb::{Dtype as CoreDtype, Layout, LayoutError};
use batchweave_wire::{ArrayLayout, Dtype, LAYOUTS_MAX, Layout as WireLayout};

/// The layout of a frame: the offset of its data in the payload, and the arrays in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    header: bytes::Bytes,
    payload_bytes: u64,
    pub(crate) wire: WireLayout,
}

impl Shape {
    /// The number of bytes before the data of the arrays.
    pub(crate) fn header_bytes(&self) -> u64 {
        self.header.len() as u64
    }

    fn from_layout(layout: &Layout) -> Self {
        let header = layout.header();
        let skip = header.len() as u64;
        let array = |a: &batchweave_core::tgb::Array| ArrayLayout {
            name: a.name.clone(),
            dtype: wire_dtype(a.dtype),
            shape: a.shape.clone(),
            offset: a.offset - skip,
        };
        let arrays = layout.arrays().iter().map(array).collect();
        let length = layout.payload_len() - skip;
        Self {
            header,
            payload_bytes: layout.payload_len(),
            wire: WireLayout { length, arrays },
        }
    }
}

fn wire_dtype(dtype: CoreDtype) -> Dtype {
    match dtype {
        CoreDtype::BOOL => Dtype::Bool,
        CoreDtype::U8 => Dtype::U8,
        CoreDtype::I8 => Dtype::I8,
        CoreDtype::U16 => Dtype::U16,
        CoreDtype::I16 => Dtype::I16,
        CoreDtype::F16 => Dtype::F16,
        CoreDtype::BF16 => Dtype::BF16,
        CoreDtype::U32 => Dtype::U32,
        CoreDtype::I32 => Dtype::I32,
        CoreDtype::F32 => Dtype::F32,
        CoreDtype::U64 => Dtype::U64,
        CoreDtype::I64 => Dtype::I64,
        CoreDtype::F64 => Dtype::F64,
    }
}

/// The most recently found shapes.
#[derive(Debug, Default)]
pub(crate) struct ShapeCache(VecDeque<Arc<Shape>>);

impl ShapeCache {
    /// Returns the shape of a payload; fails if its header is not a valid layout.
    pub(crate) fn get_or_parse(&mut self, payload: &[u8]) -> Result<Arc<Shape>, LayoutError> {
        let same = |s: &&Arc<Shape>| {
            payload.len() as u64 == s.payload_bytes && payload.starts_with(&s.header)
        };
        if let Some(known) = self.0.iter().find(same) {
            return Ok(known.clone());
        }
        let shape = Arc::new(Shape::from_layout(&Layout::parse(payload)?));
        if self.0.len() == LAYOUTS_MAX as usize {
            self.0.pop_back();
        }
        self.0.push_front(shape.clone());
        Ok(shape)
    }
}

/// The layout numbers of one session.
#[derive(Debug, Default)]
pub(crate) struct LayoutNumbers {
    known: Vec<Arc<Shape>>,
    replaced: usize,
}

impl LayoutNumbers {
    /// Returns the number of `shape`, and whether it is new, so that the layout must be sent first.
    pub(crate) fn number_for(&mut self, shape: &Arc<Shape>) -> (u32, bool) {
        if let Some(number) = self.known.iter().position(|k| Arc::ptr_eq(k, shape)) {
            return (number as u32, false);
        }
        if self.known.len() < LAYOUTS_MAX as usize {
            self.known.push(shape.clone());
            return (self.known.len() as u32 - 1, true);
        }
        let number = self.replaced % LAYOUTS_MAX as usize;
        self.replaced += 1;
        self.known[number] = shape.clone();
        (number as u32, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(rows: u64) -> Vec<u8> {
        let layout = Layout::tokens(CoreDtype::U16, rows, 9).unwrap();
        layout.encode_tokens(&vec![7; rows as usize * 9]).unwrap()
    }

    #[test]
    fn one_header_is_one_shape() {
        let mut shapes = ShapeCache::default();
        let a = shapes.get_or_parse(&payload(4)).unwrap();
        assert!(Arc::ptr_eq(&a, &shapes.get_or_parse(&payload(4)).unwrap()));
        assert!(!Arc::ptr_eq(&a, &shapes.get_or_parse(&payload(5)).unwrap()));
        assert_eq!(a.wire.length, 4 * 9 * 2);
        assert_eq!(a.wire.arrays[0].offset, 0);
        assert_eq!(a.header_bytes() % 64, 0);
        assert!(shapes.get_or_parse(b"no safetensors").is_err());
    }

    #[test]
    fn a_session_never_knows_more_than_the_protocol_allows() {
        let (mut shapes, mut numbers) = (ShapeCache::default(), LayoutNumbers::default());
        let made: Vec<_> = (1..=80)
            .map(|rows| shapes.get_or_parse(&payload(rows)).unwrap())
            .collect();
        for (i, shape) in made.iter().enumerate() {
            let (number, new) = numbers.number_for(shape);
            assert_eq!((number, new), (i as u32 % LAYOUTS_MAX, true));
            assert_eq!(numbers.number_for(shape), (number, false));
        }
        assert_eq!(
            numbers.number_for(&made[0]),
            (16, true),
            "replaced, so sent again"
        );
    }
}
