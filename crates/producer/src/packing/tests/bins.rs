//! Slices of bins as docs/format.md describes them.

use batchweave_core::tgb::{Dtype, Layout, bin_ranges};

use super::balanced::{balancing, batches};
use super::several::{Mode, documents};
use super::*;

/// A slice with every array that a slice of bins can have, as docs/format.md describes it.
#[test]
fn a_slice_of_bins_matches_version_1_byte_for_byte() {
    let beside = Beside {
        extras: vec![
            Extra::SegmentIds,
            Extra::Positions,
            Extra::LossMask,
            Extra::CuSeqlens,
            Extra::DocumentIds,
        ],
        columns: vec![array("reward", Dtype::F32, &[])],
        arrays: vec![array("image", Dtype::U8, &[2])],
    };
    let mut all = documents(Mode::BestFit, &[vec![3], vec![6], vec![2], vec![9]], true);
    for (document, value) in all.iter_mut().zip(1_u8..) {
        document.arrays = vec![vec![value; 2 * usize::from(value)].into()];
        let bytes = f32::from(value).to_le_bytes();
        document.columns = Some([[bytes[0], bytes[1], bytes[2], bytes[3], 0, 0, 0, 0]].into());
    }
    let made = pack(
        Box::new(Balanced::new(
            balancing(1, true),
            batches(1, 0),
            Restart::default(),
        )),
        &all,
        Point::default(),
    );
    let encoder = Encoder::bins(batches(1, 0).shape, 1000, &beside).unwrap();
    let slice = encoder.slice(&made.0[0], 0).unwrap();
    let mut payload = vec![0xff; usize::try_from(slice.payload_len()).unwrap()];
    slice.write(&mut payload).unwrap();
    assert!(encoder.frame_bytes(&made.0[0], 2) >= 2 * slice.payload_len());
    let layout = Layout::parse(&payload).unwrap();
    let bins = bin_ranges(&layout, &payload).unwrap();
    assert_eq!(bins.len(), 2);
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/bins-v1.safetensors"
    );
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &payload).unwrap();
    }
    let stored = std::fs::read(path).unwrap_or_default();
    assert!(stored == payload, "the stored format must never change");
}

fn array(name: &str, dtype: Dtype, shape: &[u64]) -> ArraySpec {
    ArraySpec {
        name: name.to_owned(),
        from: String::new(),
        dtype,
        shape: shape.to_vec(),
        base64: false,
        path: false,
        image: None,
        shortest: None,
    }
}
