//! A device small enough to be filled: a tmpfs in the test's own mount namespace, so that nothing is
//! mounted on the machine and nothing is left behind, however the test ends.
//!
//! The test runs itself again, alone, inside the namespace; it needs no root where the system allows
//! user namespaces.

use std::path::PathBuf;
use std::process::Command;

const INSIDE: &str = "BATCHWEAVE_TINY_DISK";
/// The script's exit code when the namespace or the mount is refused.
const REFUSED: i32 = 111;
const SCRIPT: &str =
    r#"mount -t tmpfs -o "$1" tmpfs "$2" || exit 111; exec "$3" --exact "$4" --nocapture"#;

/// Returns the folder of the device in the inner run of the test `name` (its full path in its
/// binary), whose failure fails the outer run, too. Returns `None` in the outer run, when the inner
/// one has ended.
///
/// Where the system refuses the mount, this prints a note; under CI as root it is a failure.
///
/// # Panics
/// When the inner run fails, or cannot be started under `CI=true` as root.
pub fn within(name: &str, mount_options: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return Some(PathBuf::from(folder));
    }
    let (Ok(folder), Ok(this)) = (tempfile::tempdir(), std::env::current_exe()) else {
        panic!("no temporary folder, or no name of this program");
    };
    let root = is_root();
    let status = Command::new("unshare")
        .arg(if root { "-m" } else { "-rm" })
        .args(["sh", "-c", SCRIPT, "sh", mount_options])
        .arg(folder.path())
        .arg(this)
        .arg(name)
        .env(INSIDE, folder.path())
        .status();
    match status {
        Ok(status) if status.success() => return None,
        // Exit code 1 also means that unshare was refused; a failed test exits with 101.
        Ok(status) if ![Some(REFUSED), Some(1)].contains(&status.code()) => {
            panic!("{name} failed on the small device: {status}")
        }
        refused => eprintln!(
            "NOT RUN: {name}: no mount namespace with a tmpfs here ({refused:?}); run it as root, or allow user namespaces"
        ),
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!(ci && root), "{name} must run under CI: see above");
    None
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|out| out.stdout.trim_ascii() == b"0")
}
