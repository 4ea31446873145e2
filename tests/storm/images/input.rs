//! Seeded images with captions in shards, and the function that filters and changes them.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use image::{ImageFormat, Rgb, RgbImage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SHARDS: u64 = 6;
const SAMPLES: u64 = 50;
/// The function ends its process at one of this many documents, before any other decision about it.
const FATAL_EVERY: u64 = 11;

/// Where there is a folder for deaths, each of some documents kills the process once: a signal as from outside.
const FUNCTION: &str = r#"
import os
import pathlib
import signal

DEATHS = pathlib.Path(__file__).parent / "deaths"


def changed(document):
    number, caption, image = document["cls"], document["txt"], document["jpg"]
    if number % FATAL_EVERY == 3 and DEATHS.is_dir():
        try:
            (DEATHS / str(number)).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    if number % 5 == 0:
        return None
    if number % 3 == 0:
        caption = f"{number} {caption.upper()}"
    return {"text": caption, "image": image, "pixels": image, "size": image, "label": -number}
"#;

/// Writes the same samples for the same seed. Returns their number.
pub(super) fn write(folder: &Path, seed: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    std::fs::create_dir_all(folder).unwrap();
    for shard in 0..SHARDS {
        let file = File::create(folder.join(format!("{shard}.tar"))).unwrap();
        let mut tar = tar::Builder::new(file);
        for number in shard * SAMPLES..(shard + 1) * SAMPLES {
            let png = rng.random_bool(0.5);
            let image = encoded(&mut rng, png);
            let caption: String = (0..rng.random_range(1..400))
                .map(|_| char::from(rng.random_range(b'a'..=b'z')))
                .collect();
            let extension = if png { "png" } else { "jpg" };
            add(&mut tar, &format!("{number:05}.{extension}"), &image);
            add(&mut tar, &format!("{number:05}.txt"), caption.as_bytes());
            add(
                &mut tar,
                &format!("{number:05}.cls"),
                number.to_string().as_bytes(),
            );
        }
        tar.finish().unwrap();
    }
    SHARDS * SAMPLES
}

fn add(tar: &mut tar::Builder<File>, name: &str, data: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, data).unwrap();
}

fn encoded(rng: &mut StdRng, png: bool) -> Vec<u8> {
    let (width, height) = (rng.random_range(3..32), rng.random_range(3..32));
    let image = RgbImage::from_fn(width, height, |_, _| Rgb(rng.random()));
    let format = if png {
        ImageFormat::Png
    } else {
        ImageFormat::Jpeg
    };
    let mut data = Cursor::new(Vec::new());
    image.write_to(&mut data, format).unwrap();
    data.into_inner()
}

pub(super) fn write_function(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let code = FUNCTION.replace("FATAL_EVERY", &FATAL_EVERY.to_string());
    std::fs::write(folder.join("captions.py"), code).unwrap();
}

/// Returns the number of documents at which the function ends its process.
pub(super) fn fatal(documents: u64) -> u64 {
    (0..documents).filter(|n| n % FATAL_EVERY == 3).count() as u64
}

/// Returns the packing, the source and the function of a configuration.
pub(super) fn settings(shards: &Path, code: &Path) -> String {
    format!(
        "mode = \"best_fit\"\nlook_ahead = 64\nfields = [\"segment_ids\"]\nlast_batch = \"pad\"\n\
         arrays = [\n\
         {{ name = \"image\", from = \"jpg;png\", dtype = \"U8\", shape = [16, 16, 3], image = \"crop\" }},\n\
         {{ name = \"pixels\", from = \"jpg;png\", dtype = \"U8\", shape = [3], image = \"pixels\" }},\n\
         {{ name = \"size\", from = \"jpg;png\", dtype = \"I32\", shape = [2], image = \"size\" }},\n\
         {{ name = \"label\", from = \"cls\", dtype = \"I64\" }},\n]\n\
         [source]\npaths = [\"{}/*.tar\"]\n\
         [transform]\nfunction = \"captions:changed\"\npath = {:?}\nworkers = 2\ntimeout = \"15min\"\n",
        shards.display(),
        code.display().to_string(),
    )
}
