//! The places of a run on this machine: the socket, the ports of the status pages, and the folder of logs.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::RngExt;
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::claim::{Claim, Claimed, claim, is_claimed};
use super::error::RunError;

/// The address of a consumer's status page unless the file names another or a program has it.
const STATUS_PAGE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);
/// Ports below Linux's ephemeral ports, of which the kernel gives one to each outgoing connection.
const PORTS: Range<u16> = 20_000..32_000;
const PORT_TRIES: usize = 100;
const SOCKET: &str = "consumer.sock";
/// Runs of one user that have sockets in one folder.
const SOCKETS_MAX: usize = 64;
/// Longest wait for the consumer of a run that has ended to free its socket.
const FREED_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
/// The Python client reads it too.
const SOCKET_VARIABLE: &str = "BATCHWEAVE_SOCKET";
/// Rights of a folder of one user.
const PRIVATE: u32 = 0o700;

/// A socket, and the words with which a Python program connects to it.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    /// The client finds the socket without its path.
    pub(super) found: bool,
    /// Keeps other runs of this user from its name.
    _claim: Option<Claim>,
}

/// Whether a socket's folder is created, and its name locked for this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Neither: only the name is wanted.
    Name,
    /// The folder, for a check.
    Folder,
    /// Both, for a run.
    Run,
}

/// Returns the folders in which the Python client looks for a socket, in its order.
fn folders() -> [PathBuf; 3] {
    let user = geteuid().as_raw();
    [
        "/run/batchweave".into(),
        format!("/run/user/{user}/batchweave").into(),
        format!("/tmp/batchweave-{user}").into(),
    ]
}

/// The socket of a check. The daemon's own check needs its folder; one that was made for it is removed afterwards.
pub(super) struct CheckedSocket {
    pub(super) socket: Socket,
    made: Option<PathBuf>,
}

impl CheckedSocket {
    pub(super) fn new(given: Option<&Path>, make: bool) -> Result<Self, RunError> {
        let before: Vec<PathBuf> = folders().into_iter().filter(|f| f.exists()).collect();
        let socket = socket(given, if make { Use::Folder } else { Use::Name })?;
        let folder = socket.path.parent().map(Path::to_path_buf);
        let made = folder.filter(|f| folders().contains(f) && !before.contains(f));
        Ok(Self { socket, made })
    }
}

impl Drop for CheckedSocket {
    fn drop(&mut self) {
        // Fails, as it should, where another run uses the folder by now.
        let _ = self.made.as_ref().map(fs::remove_dir);
    }
}

/// Returns the socket of this run: the file's, that of the environment, or the first that this user may make.
pub(super) fn socket(given: Option<&Path>, wanted: Use) -> Result<Socket, RunError> {
    let variable = std::env::var_os(SOCKET_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    socket_in(&folders(), given.or(variable.as_deref()), wanted)
}

/// Returns the folder of this user's locks, which is created; `None` where there is none.
pub(super) fn locks() -> Option<PathBuf> {
    usable(&folders(), true)
}

/// Returns the first folder that this user may use; `make` creates one.
fn usable(folders: &[PathBuf], make: bool) -> Option<PathBuf> {
    // The first is the system's: the service manager or an administrator makes it.
    let usable = |(number, folder): &(usize, &PathBuf)| {
        is_ours(folder) || (make && *number > 0 && private_folder(folder).is_ok())
    };
    let first = folders.iter().enumerate().find(usable);
    let last = folders.last().filter(|folder| !make || is_ours(folder));
    first.map(|(_, folder)| folder).or(last).cloned()
}

fn socket_in(folders: &[PathBuf], given: Option<&Path>, wanted: Use) -> Result<Socket, RunError> {
    if let Some(path) = given {
        let path = path.to_path_buf();
        if wanted == Use::Run {
            // One that stays is refused by the consumer.
            let _ = is_freed(&path, FREED_WITHIN);
        }
        return Ok(Socket {
            found: is_first(folders, &path),
            path,
            _claim: None,
        });
    }
    let Some(folder) = usable(folders, wanted != Use::Name) else {
        let folder = folders.last().cloned().unwrap_or_default();
        return Err(RunError::SocketFolder { folder });
    };
    for number in 1..=SOCKETS_MAX {
        let name = match number {
            1 => SOCKET.to_owned(),
            number => format!("consumer-{number}.sock"),
        };
        if let Ok(claim) = free(&folder, &name, wanted) {
            let path = folder.join(name);
            return Ok(Socket {
                found: is_first(folders, &path),
                path,
                _claim: claim,
            });
        }
    }
    let sockets = SOCKETS_MAX;
    Err(RunError::NoSocket { folder, sockets })
}

/// Returns whether the client, which takes the first socket that exists, takes `path`.
fn is_first(folders: &[PathBuf], path: &Path) -> bool {
    let all = folders.iter().map(|folder| folder.join(SOCKET));
    let mut before = all.take_while(|place| place != path);
    let listed = folders.iter().any(|folder| folder.join(SOCKET) == path);
    listed && !before.any(|place| is_socket(&place))
}

/// Another run or a daemon uses a socket's name.
struct Taken;

/// Returns the lock on a socket's name, for a run, unless it is taken.
fn free(folder: &Path, name: &str, wanted: Use) -> Result<Option<Claim>, Taken> {
    let path = folder.join(name);
    if wanted != Use::Run {
        let taken = is_claimed(folder, name) || is_served(&path);
        return if taken { Err(Taken) } else { Ok(None) };
    }
    // Without locks, as on some file systems, the consumer refuses a socket that is served.
    let Ok(claimed) = claim(folder, name) else {
        return Ok(None);
    };
    let Claimed::Ours { claim, used_before } = claimed else {
        return Err(Taken);
    };
    // The consumer of an earlier run ends soon after it; that of a service does not.
    let within = if used_before {
        FREED_WITHIN
    } else {
        Duration::ZERO
    };
    if is_freed(&path, within) {
        Ok(Some(claim))
    } else {
        Err(Taken)
    }
}

/// Returns whether no process accepts connections there, or stops to in time.
fn is_freed(path: &Path, within: Duration) -> bool {
    let until = Instant::now() + within;
    while is_served(path) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Returns whether a process accepts connections there.
fn is_served(path: &Path) -> bool {
    is_socket(path) && UnixStream::connect(path).is_ok()
}

/// Returns whether this user may make a socket in the folder, and only root and this user may replace it.
fn is_ours(folder: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return false;
    };
    let owner = meta.uid() == 0 || meta.uid() == geteuid().as_raw();
    let private = meta.mode() & 0o002 == 0;
    meta.is_dir() && owner && private && access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Creates a folder of this user alone, where its parent exists.
fn private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(PRIVATE).create(folder)
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// The folder of a run's logs. A lock in it keeps a second run of the same file out.
#[derive(Debug)]
pub(super) struct Logs {
    pub(super) folder: PathBuf,
    _lock: File,
}

impl Logs {
    /// Creates the folder beside the file, or `given`, and locks it. Logs of the run before are kept, with `.1`.
    pub(super) fn open(file: &Path, given: Option<&Path>) -> Result<Self, RunError> {
        let folder = given.map_or_else(|| file.with_extension("logs"), Path::to_path_buf);
        let failed = |why| {
            let folder = folder.clone();
            RunError::LogFolder { folder, why }
        };
        match private_folder(&folder) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(failed(why)),
            _ => {}
        }
        let lock = File::options()
            .create(true)
            .append(true)
            .open(folder.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                folder,
                _lock: lock,
            }),
            Err(TryLockError::Error(why)) => Err(failed(why)),
            Err(TryLockError::WouldBlock) if given.is_some() => Err(RunError::LogsTaken { folder }),
            Err(TryLockError::WouldBlock) => {
                let file = file.to_path_buf();
                Err(RunError::Running { file, folder })
            }
        }
    }

    /// Returns the path of a daemon's log, which is empty.
    pub(super) fn fresh(&self, name: &str) -> Result<PathBuf, RunError> {
        let path = self.folder.join(format!("{name}.log"));
        let old = self.folder.join(format!("{name}.log.1"));
        match fs::rename(&path, old) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                Err(RunError::LogFile { path, why })
            }
            _ => Ok(path),
        }
    }
}

/// Returns the address of the consumer's status page: the file's, the usual one, or one with a free port.
pub(super) fn status_page(given: Option<&str>) -> Result<String, RunError> {
    match given {
        Some(address) => Ok(address.to_owned()),
        None if is_free(STATUS_PAGE) => Ok(STATUS_PAGE.to_string()),
        None => free_address(),
    }
}

/// Returns a local address with a random free port.
pub(super) fn free_address() -> Result<String, RunError> {
    let mut rng = rand::rng();
    let mut ports = std::iter::repeat_with(|| rng.random_range(PORTS)).take(PORT_TRIES);
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let free = ports.find(|port| is_free(address(*port)));
    free.map(|port| address(port).to_string())
        .ok_or(RunError::NoPort { tries: PORT_TRIES })
}

/// Returns whether this process could listen on the address, as the text of one.
pub(super) fn is_free_text(address: &str) -> bool {
    address.parse().is_ok_and(is_free)
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_socket_is_the_first_that_this_user_may_make() {
        let root = tempfile::tempdir().unwrap();
        let absent = root.path().join("absent").join("batchweave");
        let own = root.path().join("own");
        let places = [root.path().join("system"), absent, own.clone()];
        let before = socket_in(&places, None, Use::Name).unwrap();
        assert!(before.path.starts_with(&own) && !own.exists(), "only named");
        let made = socket_in(&places, None, Use::Run).unwrap();
        assert_eq!(made.path, own.join(SOCKET));
        assert!(made.found && !places[0].exists());
        let mode = fs::metadata(&own).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        let why = socket_in(&places, None, Use::Run).unwrap_err().to_string();
        assert!(why.contains("socket.path"), "{why}");
    }

    #[test]
    fn a_socket_that_the_client_would_not_find_is_named() {
        let root = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| root.path().join(name));
        for place in &places {
            private_folder(place).unwrap();
        }
        let given = root.path().join("else.sock");
        assert!(!socket_in(&places, Some(&given), Use::Run).unwrap().found);
        let second = places[1].join(SOCKET);
        assert!(socket_in(&places, Some(&second), Use::Run).unwrap().found);
        let _first = UnixListener::bind(places[0].join(SOCKET)).unwrap();
        assert!(!socket_in(&places, Some(&second), Use::Run).unwrap().found);
    }

    #[test]
    fn runs_of_one_user_have_sockets_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let places = [root.path().join("system"), root.path().join("own")];
        let own = places[1].clone();
        let run = || socket_in(&places, None, Use::Run).unwrap();
        let first = run();
        let second = run();
        assert_eq!(first.path, own.join(SOCKET));
        assert_eq!(second.path, own.join("consumer-2.sock"));
        assert!(first.found && !second.found, "its path is printed");
        let checked = socket_in(&places, None, Use::Folder).unwrap();
        assert_eq!(checked.path, own.join("consumer-3.sock"));
        drop(first);
        assert_eq!(run().path, own.join(SOCKET));
        // One that no run has locked, of a service.
        let served = own.join("consumer-3.sock");
        let _service = UnixListener::bind(&served).unwrap();
        let _first = run();
        assert_eq!(run().path, own.join("consumer-4.sock"));
    }

    #[test]
    fn a_file_has_one_run_at_a_time_and_keeps_the_logs_before() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("mine.toml");
        let logs = Logs::open(&file, None).unwrap();
        assert_eq!(logs.folder, root.path().join("mine.logs"));
        let why = Logs::open(&file, None).unwrap_err().to_string();
        assert!(why.contains("mine.toml is run by another process"), "{why}");
        let other = root.path().join("other.toml");
        let why = Logs::open(&other, Some(&logs.folder)).unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("mine.logs has the logs of another run"),
            "{why}"
        );
        let path = logs.fresh("producer").unwrap();
        fs::write(&path, "first").unwrap();
        assert!(!logs.fresh("producer").unwrap().exists());
        assert_eq!(
            fs::read_to_string(path.with_extension("log.1")).unwrap(),
            "first"
        );
        drop(logs);
        assert!(Logs::open(&file, None).is_ok());
        let absent = root.path().join("no").join("folder");
        let why = Logs::open(&file, Some(&absent)).unwrap_err().to_string();
        assert!(why.contains("--logs"), "{why}");
    }

    #[test]
    fn a_port_that_a_program_has_is_not_chosen() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(taken.local_addr().unwrap()));
        let free: SocketAddr = free_address().unwrap().parse().unwrap();
        assert!(PORTS.contains(&free.port()));
        assert_eq!(status_page(Some("[::1]:7")).unwrap(), "[::1]:7");
    }
}
