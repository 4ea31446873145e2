//! Names of members, as webdataset divides them.

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
