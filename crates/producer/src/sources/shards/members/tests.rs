//! Names of members, as webdataset divides them, and plain headers, as the crate reads them.

use proptest::prelude::*;

use super::*;

#[test]
fn names_are_divided_as_by_webdataset() {
    for (name, expected) in [
        ("a/b.seg.png", Some(("a/b", "seg.png"))),
        ("000.JPG", Some(("000", "jpg"))),
        ("./a.b.c", Some(("./a", "b.c"))),
        ("x.y/z.cls", Some(("x.y/z", "cls"))),
        ("a.", Some(("a", ""))),
        ("__key.txt", Some(("__key", "txt"))),
        ("a/__b__/c.txt", Some(("a/__b__/c", "txt"))),
        ("Ä/Ö.ÜX", Some(("Ä/Ö", "üx"))),
        ("README", None),
        ("x.y/README", None),
        ("a/", None),
        (".hidden", None),
        ("a/._b.jpg", None),
        ("__meta__", None),
        ("__meta__/a.txt", None),
        ("__a.b__", None),
        ("", None),
    ] {
        let found = key_and_field(name.as_bytes());
        let expected =
            expected.map(|(key, field): (&str, &str)| (key.as_bytes().to_vec(), field.to_owned()));
        assert_eq!(found, expected, "{name}");
    }
}

fn header(form: u8, kind: u8, name: &str, size: u64, faults: &[(usize, u8)]) -> Header {
    let mut header = match form {
        0 => Header::new_gnu(),
        1 => Header::new_ustar(),
        _ => Header::new_old(),
    };
    header.set_entry_type(tar::EntryType::new(kind));
    // A name that is too long for the form is left out.
    let _ = header.set_path(name);
    header.set_size(size);
    let (before, after) = faults.split_at(faults.len() / 2);
    let damage = |header: &mut Header, faults: &[(usize, u8)]| {
        for (at, byte) in faults {
            header.as_mut_bytes()[*at] = *byte;
        }
    };
    damage(&mut header, before);
    header.set_cksum();
    damage(&mut header, after);
    header
}

proptest! {
    #[test]
    fn a_plain_header_says_what_the_crate_reads(
        form in 0_u8..3,
        kind in prop::sample::select(&b"0000\x00157LxgS "[..]),
        name in "[a-zA-Z0-9./é]{0,20}(/[a-z.]{90,120})?",
        size in prop_oneof![0_u64..10_000, any::<u64>()],
        faults in prop::collection::vec((0_usize..512, any::<u8>()), 0..4),
    ) {
        let header = header(form, kind, &name, size, &faults);
        let file: Vec<u8> = [&header.as_bytes()[..], &[0; 2048]].concat();
        let mut members = Members::new(Box::new(io::Cursor::new(file)), 0);
        let read = entry(&mut members.stream);
        if let Some(plain) = plain(&header) {
            prop_assert_eq!(read.unwrap(), Some(plain));
        } else if kind == b'0' && faults.is_empty() {
            // What is not plain costs more: most files are.
            prop_assert!(read.is_err());
        }
    }
}
