//! Files of folders, and those that are refused.

use std::os::unix::fs::symlink;

use super::*;

fn bad(read: Result<NamedFile, SourceError>) -> String {
    match read {
        Ok(NamedFile::Bad(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn files_are_read_below_the_root_only() {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("root");
    std::fs::create_dir_all(root.join("images")).unwrap();
    std::fs::write(root.join("images/1"), b"one").unwrap();
    std::fs::write(world.path().join("secret"), b"secret").unwrap();
    symlink("images/1", root.join("inner")).unwrap();
    symlink("../secret", root.join("outer")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("circle", root.join("circle")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), 0o600.into()).unwrap();
    let link = world.path().join("link");
    symlink("root", &link).unwrap();
    let never = |_: String| -> futures::future::BoxFuture<'static, _> { unreachable!() };
    for name in [root.clone(), link] {
        let name = name.display().to_string();
        let files = FileRoot::open(&name, &never).await.unwrap();
        for path in ["images/1", "inner", &format!("{name}/images/1")] {
            let whole = NamedFile::Whole(Bytes::from_static(b"one"));
            assert_eq!(files.read(path, 3).await.unwrap(), whole, "{path}");
            let large = files.read(path, 2).await.unwrap();
            assert_eq!(large, NamedFile::TooLarge, "{path}");
        }
        for (path, expected) in [
            ("outer", "outside the allowed root"),
            ("up/secret", "outside the allowed root"),
            ("../secret", "outside the allowed root"),
            ("images", "is not a regular file"),
            ("fifo", "is not a regular file"),
            ("circle", "is a circle of links"),
            ("images/2", "does not exist below"),
            ("images/1/2", "does not exist below"),
            ("dangling", "does not exist below"),
            (&"x".repeat(300), "does not exist below"),
            ("", "the path is empty"),
        ] {
            let why = bad(files.read(path, 3).await);
            assert!(why.contains(expected), "{path}: {why}");
        }
    }
}

#[tokio::test]
async fn a_root_that_is_gone_is_no_bad_document() {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("root");
    let never = |_: String| -> futures::future::BoxFuture<'static, _> { unreachable!() };
    let name = root.display().to_string();
    let refused = FileRoot::open(&name, &never).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("source.root: "),
        "{refused}"
    );
    std::fs::create_dir(&root).unwrap();
    let files = FileRoot::open(&name, &never).await.unwrap();
    std::fs::remove_dir(&root).unwrap();
    let why = files.read("a", 3).await.unwrap_err();
    assert!(why.to_string().contains("can't be read"), "{why}");
}
