//! Decoding and resizing alone: the producer's own code on all cores, on JPEGs in memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use batchweave_console::CliError;
use batchweave_core::tgb::Dtype;
use batchweave_producer::packing::{ArraySpec, Picture};
use batchweave_producer::sources::{Cell, Place, Unit, UnitKind};
use batchweave_producer::transform::arrays::sample;

use super::SIDE;
use crate::bench::cpu::{on_all_cores, process_seconds};
use crate::error::bench_error;

/// Time that the work took, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alone {
    pub(super) wall: f64,
    pub(super) cpu: f64,
}

/// Returns the JPEGs in the shards of a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<Vec<u8>>, CliError> {
    let mut found = Vec::new();
    for shard in std::fs::read_dir(folder)? {
        let mut shard = tar::Archive::new(File::open(shard?.path())?);
        for member in shard.entries()? {
            let mut member = member?;
            if member.path()?.extension().is_some_and(|end| end == "jpg") {
                let mut data = Vec::new();
                member.read_to_end(&mut data)?;
                found.push(data);
            }
        }
    }
    Ok(found)
}

/// Decodes and resizes each file once.
pub(super) fn alone(files: &[Vec<u8>]) -> Result<Alone, CliError> {
    let specs = [ArraySpec {
        name: "image".to_owned(),
        from: "jpg".to_owned(),
        dtype: Dtype::U8,
        shape: vec![SIDE, SIDE, 3],
        base64: false,
        image: Some(Picture::Crop),
        path: false,
        shortest: None,
    }];
    let next = AtomicUsize::new(0);
    let (began, cpu) = (Instant::now(), process_seconds("self")?);
    let work = || {
        while let Some(data) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let unit = Unit {
                place: Place::default(),
                kind: UnitKind::Sample,
                raw: Ok(bytes::Bytes::new()),
                cells: vec![Cell::Bytes(data.clone())],
            };
            let made = sample(&specs, unit).map_err(bench_error)?;
            std::hint::black_box(made);
        }
        Ok::<(), CliError>(())
    };
    on_all_cores(work)?;
    Ok(Alone {
        wall: began.elapsed().as_secs_f64(),
        cpu: process_seconds("self")? - cpu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_jpegs_of_shards_are_decoded() {
        let folder = tempfile::tempdir().unwrap();
        let mut shard = tar::Builder::new(File::create(folder.path().join("a.tar")).unwrap());
        for (name, data) in [("0.jpg", &b"no image"[..]), ("0.cls", b"7")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            shard.append_data(&mut header, name, data).unwrap();
        }
        shard.finish().unwrap();
        let files = files(folder.path()).unwrap();
        assert_eq!(files, [b"no image"]);
        let why = alone(&files).unwrap_err().to_string();
        assert!(why.contains("is not JPEG, PNG or WebP"), "{why}");
    }
}
