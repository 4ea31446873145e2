//! A device small enough to be filled: a tmpfs in a mount namespace of the test's own, so that
//! nothing is mounted on the machine and nothing is left behind, however the test ends.
//!
//! A test that wants one runs itself again, alone, inside the namespace; no root is needed where
//! the system allows user namespaces.

use std::path::PathBuf;
use std::process::Command;

const INSIDE: &str = "BATCHWEAVE_TINY_DISK";
/// Of the script, when the namespace or the mount is refused.
const REFUSED: i32 = 111;
const SCRIPT: &str =
    r#"mount -t tmpfs -o "$1" tmpfs "$2" || exit 111; exec "$3" --exact "$4" --nocapture"#;

/// The folder of the device, in the inner run of the test `name` (its full path in its binary); what
/// is done there fails the outer run, too. `None` in the outer run, when all is over.
///
/// Where the system refuses the mount, this says so aloud; under CI as root it is a failure.
///
/// # Panics
/// When the inner run fails, or can't be made under `CI=true` as root.
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
        // 1 is also what unshare says when it is refused; a failed test says 101.
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
