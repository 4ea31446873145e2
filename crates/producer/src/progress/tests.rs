//! Progress over a list of files, in bytes.

use std::path::PathBuf;

use super::*;
use crate::sources::{InputFile, InputList, Location, PinnedFile};

fn inputs(sizes: &[u64]) -> Arc<Inputs> {
    let file = |(n, size): (usize, &u64)| InputFile {
        pin: PinnedFile::new(format!("{n}.txt"), *size, b"", b""),
        location: Location::Local(PathBuf::from(n.to_string())),
    };
    let files = sizes.iter().enumerate().map(file).collect();
    Arc::new(Inputs::new(InputList::of(files)))
}

fn at(pass: u64, file: u32, bytes: u64) -> Reached {
    Reached { pass, file, bytes }
}

#[test]
fn bytes_count_files_and_passes() {
    let progress = InputProgress::new(inputs(&[100, 50]), 3, false);
    assert_eq!(progress.now(), None, "nothing is packed yet");
    progress.reached(at(1, 1, 20));
    let now = progress.now().unwrap();
    assert_eq!((now.bytes, now.total), (150 + 100 + 20, Some(450)));
    assert_eq!((now.pass, now.file), ((1, Some(3)), (2, 2)));
    assert_eq!(now.name, "1.txt");
    progress.reached(at(2, 1, 50));
    progress.reached(Reached::pass(3));
    let now = progress.now().unwrap();
    assert_eq!((now.bytes, now.total), (450, Some(450)), "the end");
}

#[test]
fn input_that_grows_or_repeats_for_ever_has_no_end() {
    let endless = InputProgress::new(inputs(&[100]), 0, false);
    endless.reached(at(7, 0, 10));
    let now = endless.now().unwrap();
    assert_eq!((now.bytes, now.total, now.pass), (710, None, (7, None)));
    let all = inputs(&[100]);
    let grows = InputProgress::new(Arc::clone(&all), 1, true);
    grows.reached(at(0, 0, 100));
    let now = grows.now().unwrap();
    assert_eq!((now.total, now.name.as_str()), (None, ""), "waits");
    let mut list = InputList::clone(&all.now());
    list.files.extend(inputs(&[5, 6]).now().files[1..].to_vec());
    all.replace(list);
    grows.reached(at(0, 1, 3));
    let now = grows.now().unwrap();
    assert_eq!((now.file, now.name.as_str()), ((2, 2), "1.txt"));
}
