//! Files of tools that write more than one plain member or frame.

use std::io::{Read, Write};

use super::*;

const TEXT: &[u8] = b"alpha\nbeta\n";
/// `TEXT` as bzip2 and xz write it.
const BZIP2: &[u8] = &[
    0x42, 0x5a, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0xb5, 0x66, 0x4d, 0xf1, 0x00, 0x00,
    0x02, 0x41, 0x80, 0x00, 0x10, 0x32, 0x44, 0x44, 0x00, 0x20, 0x00, 0x31, 0x0c, 0x08, 0x1a, 0x0c,
    0x9e, 0xa5, 0xa2, 0x6a, 0x64, 0x0f, 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, 0xb5, 0x66, 0x4d, 0xf1,
];
const XZ: &[u8] = &[
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01,
    0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0a, 0x61, 0x6c, 0x70, 0x68, 0x61,
    0x0a, 0x62, 0x65, 0x74, 0x61, 0x0a, 0x00, 0x00, 0xcf, 0x86, 0xbd, 0xed, 0x84, 0x72, 0x0e, 0x0a,
    0x00, 0x01, 0x23, 0x0b, 0xc2, 0x1b, 0xfd, 0x09, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00,
    0x00, 0x04, 0x59, 0x5a,
];
const MEMORY: DecoderMemory = DecoderMemory {
    most: 512 << 20,
    file: 1 << 40,
};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(text).unwrap();
    out.finish().unwrap()
}

/// Returns a zstd frame with this window, whose header does not say its size.
fn zstandard(log: u32) -> Vec<u8> {
    let mut out = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    out.window_log(log).unwrap();
    out.write_all(TEXT).unwrap();
    out.finish().unwrap()
}

fn read(bytes: &[u8], memory: DecoderMemory) -> Result<Vec<u8>, Reason> {
    let codec = Codec::from_head(&bytes[..bytes.len().min(18)]);
    assert_ne!(codec, Codec::Plain);
    let file: Box<dyn Read + Send> = Box::new(io::Cursor::new(bytes.to_vec()));
    let mut out = Vec::new();
    let done = codec
        .decode(file, memory)
        .and_then(|mut stream| stream.read_to_end(&mut out));
    done.map(|_| out)
        .map_err(|why| codec.reason(&why, &bytes[..bytes.len().min(18)], memory))
}

#[test]
fn padding_members_and_skippable_frames_are_no_documents() {
    let skippable = [&[0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let twice = [TEXT, TEXT].concat();
    let (gz, zst) = (gzip(TEXT), zstandard(20));
    let zeros = vec![0; 300_000];
    for (name, parts, expected) in [
        ("gzip", vec![&gz[..]], TEXT),
        ("gzip, two members", vec![&gz, &gz], &twice),
        ("gzip, padded", vec![&gz, &zeros], TEXT),
        ("gzip, padded between", vec![&gz, &zeros, &gz, &[0]], &twice),
        ("zstd, two frames", vec![&zst, &zst], &twice),
        ("zstd, skippable first", vec![&skippable, &zst], TEXT),
        (
            "zstd, skippable between and last",
            vec![&zst, &skippable, &zst, &skippable],
            &twice,
        ),
    ] {
        assert_eq!(
            read(&parts.concat(), MEMORY).as_deref(),
            Ok(expected),
            "{name}"
        );
    }
}

#[test]
fn bzip2_and_xz_are_read_in_all_their_streams() {
    for (codec, bytes) in [(Codec::Bzip2, BZIP2), (Codec::Xz, XZ)] {
        assert_eq!(Codec::from_head(bytes), codec);
        assert_eq!(read(bytes, MEMORY).as_deref(), Ok(TEXT));
        let twice = read(&[bytes, bytes].concat(), MEMORY);
        assert_eq!(
            twice.as_deref(),
            Ok(&[TEXT, TEXT].concat()[..]),
            "{codec:?}"
        );
        let cut = read(&bytes[..bytes.len() - 9], MEMORY)
            .unwrap_err()
            .to_string();
        assert!(cut.contains("data ends early or is damaged"), "{cut}");
    }
    let small = DecoderMemory {
        most: 1 << 20,
        ..MEMORY
    };
    let why = read(XZ, small).unwrap_err().to_string();
    assert!(
        why.contains("source.decompress_memory is \"1MiB\""),
        "{why}"
    );
}

#[test]
fn a_window_beyond_the_bound_is_named() {
    let most = |most: u64| DecoderMemory { most, ..MEMORY };
    for log in [10, 27, 28, 29] {
        assert_eq!(read(&zstandard(log), MEMORY).as_deref(), Ok(TEXT), "{log}");
    }
    for (log, needed) in [(30, "\"1GiB\""), (31, "\"2GiB\"")] {
        let why = read(&zstandard(log), MEMORY).unwrap_err().to_string();
        let words = format!(
            "needs {needed} of memory, and source.decompress_memory is \"512MiB\"; raise it"
        );
        assert!(why.contains(&words), "{why}");
        let raised = read(&zstandard(log), most(1 << log));
        assert_eq!(raised.as_deref(), Ok(TEXT));
        // A file that is too small to fill the window needs little memory.
        let file = zstandard(log).len() as u64;
        let small = DecoderMemory {
            most: 8 << 20,
            file,
        };
        assert_eq!(read(&zstandard(log), small).as_deref(), Ok(TEXT));
    }
}

#[test]
fn damage_stays_damage() {
    let (gz, zst) = (gzip(TEXT), zstandard(20));
    for bytes in [
        gz[..gz.len() - 3].to_vec(),
        [&gz[..], b"garbage"].concat(),
        [&gz[..], &gz[..5]].concat(),
        zst[..zst.len() - 3].to_vec(),
        [&zst[..], b"garbage"].concat(),
    ] {
        let why = read(&bytes, MEMORY).unwrap_err().to_string();
        assert!(why.contains("ends early or is damaged here"), "{why}");
    }
}
