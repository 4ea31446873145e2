//! Samples of one array of bytes: a `.npy` file each where they are large, and members of tar shards where they are small.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use batchweave_core::tgb::Dtype;
use batchweave_producer::packing::ArraySpec;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use batchweave_console::CliError;

const SEED: u64 = 20_261_126;
/// Mean size from which each sample is a file of its own.
const FILE_BYTES: u64 = 64 << 10;
const SHARDS: u64 = 8;
/// Bytes that samples are cut from, at least as many as the largest one has: random ones take longer to make than to
/// ingest.
const POOL_BYTES: usize = 64 << 20;

/// The samples of a measurement.
pub(super) struct Input {
    pub(super) files: Vec<PathBuf>,
    /// The suffix of the files: `npy` or `tar`.
    pub(super) form: &'static str,
    /// Bytes of all samples.
    pub(super) bytes: u64,
}

/// Returns the array of a sample.
pub(super) fn array() -> ArraySpec {
    ArraySpec {
        name: "blob".to_owned(),
        from: "bin".to_owned(),
        dtype: Dtype::U8,
        shape: Vec::new(),
        base64: false,
        path: false,
        image: None,
        shortest: None,
    }
}

/// Writes whole batches of `samples` samples each, of `batch_bytes` on average, about `bytes` in all.
pub(super) fn make(
    folder: &Path,
    bytes: u64,
    batch_bytes: u64,
    samples: u64,
) -> Result<Input, CliError> {
    let mean = (batch_bytes / samples).max(1);
    let count = bytes.div_ceil(batch_bytes) * samples;
    let mut random = StdRng::seed_from_u64(SEED);
    let mut pool = vec![0; POOL_BYTES];
    random.fill_bytes(&mut pool);
    let sizes = draw_sizes(&mut random, mean, count);
    let folder = folder.join("input");
    std::fs::create_dir(&folder)?;
    let mut sample = |size: u64| {
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(pool.len());
        let from = random.random_range(0..=pool.len() - size);
        &pool[from..from + size]
    };
    let large = mean >= FILE_BYTES;
    let mut input = Input {
        files: Vec::new(),
        form: if large { "npy" } else { "tar" },
        bytes: 0,
    };
    let shards = if large { count } else { SHARDS };
    let mut numbered = sizes.into_iter().zip(0_u64..);
    for shard in 0..shards {
        let path = folder.join(format!("{shard:08}.{}", input.form));
        let file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let end = count * (shard + 1) / shards - count * shard / shards;
        let own: Vec<_> = numbered.by_ref().take(end as usize).collect();
        let own = own
            .into_iter()
            .map(|(size, n)| (sample(size), n))
            .inspect(|(data, _)| input.bytes += data.len() as u64);
        if large {
            npy(file, own)?;
        } else {
            tar(file, own)?;
        }
        input.files.push(path);
    }
    Ok(input)
}

/// Draws pairs of one small and one large sample: the mean is exact.
fn draw_sizes(random: &mut StdRng, mean: u64, count: u64) -> Vec<u64> {
    let mut sizes = Vec::new();
    while (sizes.len() as u64) < count {
        let less = random.random_range(0..=mean * 3 / 5);
        sizes.extend([mean - less, mean + less]);
    }
    sizes
}

/// Writes a sample as `numpy.save` does.
fn npy<'a>(
    mut out: impl Write,
    samples: impl Iterator<Item = (&'a [u8], u64)>,
) -> Result<(), CliError> {
    for (data, _) in samples {
        let shape = data.len();
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape},), }}");
        let length = 118;
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&(length as u16).to_le_bytes())?;
        writeln!(out, "{header:<width$}", width = length - 1)?;
        out.write_all(data)?;
    }
    Ok(out.flush()?)
}

/// Writes samples as members of a shard.
fn tar<'a>(
    out: impl Write,
    samples: impl Iterator<Item = (&'a [u8], u64)>,
) -> Result<(), CliError> {
    let mut shard = tar::Builder::new(out);
    for (data, n) in samples {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        shard.append_data(&mut header, format!("{n:09}.bin"), data)?;
    }
    Ok(shard.into_inner()?.flush()?)
}
