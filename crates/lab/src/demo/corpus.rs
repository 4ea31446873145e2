//! The demo's documents: text found on the machine, or the user's own, copied into JSONL files so that
//! producers and checker read the same bytes.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::DemoError;

/// Folders with text on most machines: Python's library, packages' docs, headers.
const PLACES: &[&str] = &[
    "/usr/share/doc",
    "/usr/share/perl",
    "/usr/lib/python3",
    "/usr/include",
    "/usr/share/info",
];
const EXTENSIONS: &[&str] = &[
    "py", "txt", "md", "rst", "html", "h", "pm", "pod", "c", "rs", "json", "tex", "xml",
];
/// Bytes of text for the default run.
const DEFAULT_BYTES: u64 = 24 << 20;
/// Longer files are split, which keeps the demo's documents readable.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// The sources of the demo, with the extensions of the first one, and their number of files.
const SOURCES: [&str; 2] = ["code", "text"];
const CODE: &[&str] = &["py", "h", "pm", "c", "rs", "json"];
const FILES: usize = 3;

/// The documents of a demo and their size.
#[derive(Debug, Clone)]
pub(crate) struct Corpus {
    /// The sources that have documents, with their JSONL files in the order in which producers read them.
    pub(crate) sources: Vec<(&'static str, Vec<PathBuf>)>,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
}

/// Copies documents into `folder`: those of `input`, or text from this machine.
pub(crate) fn collect(input: Option<&Path>, folder: &Path) -> Result<Corpus, DemoError> {
    fs::create_dir_all(folder).map_err(|e| DemoError::io("create", folder, &e))?;
    let mut writer = Writer::new(folder)?;
    match input {
        Some(path) => {
            if !path.exists() {
                let text = format!("--input {}: no such file or folder", path.display());
                return Err(DemoError::Usage(text));
            }
            walk(path, &mut |file| writer.add_file(file, true), u64::MAX)?;
        }
        None => {
            for place in python_library().iter().chain(&places()) {
                let more = DEFAULT_BYTES.saturating_sub(writer.bytes);
                if more > 0 && place.exists() {
                    walk(
                        place,
                        &mut |file| writer.add_file(file, false),
                        DEFAULT_BYTES,
                    )?;
                }
            }
        }
    }
    writer.finish()
}

fn places() -> Vec<PathBuf> {
    PLACES.iter().map(PathBuf::from).collect()
}

fn python_library() -> Vec<PathBuf> {
    let program = "import sysconfig; print(sysconfig.get_paths()['stdlib'])";
    let found = std::process::Command::new("python3")
        .args(["-c", program])
        .output();
    let path = found.ok().and_then(|o| String::from_utf8(o.stdout).ok());
    path.map(|p| PathBuf::from(p.trim()))
        .into_iter()
        .filter(|p| p.is_dir())
        .collect()
}

/// Returns files below `path` in a fixed order, up to `enough` bytes.
fn walk(
    path: &Path,
    take: &mut impl FnMut(&Path) -> Result<u64, DemoError>,
    enough: u64,
) -> Result<u64, DemoError> {
    let meta = fs::symlink_metadata(path).map_err(|e| DemoError::io("read", path, &e))?;
    if meta.is_file() {
        return take(path);
    }
    let mut taken = 0;
    if meta.is_dir() {
        let Ok(entries) = fs::read_dir(path) else {
            return Ok(0);
        };
        let mut below: Vec<_> = entries.flatten().map(|e| e.path()).collect();
        below.sort();
        for next in below {
            taken += walk(&next, take, enough)?;
            if taken >= enough {
                break;
            }
        }
    }
    Ok(taken)
}

struct Writer {
    files: Vec<(PathBuf, BufWriter<fs::File>)>,
    documents: u64,
    bytes: u64,
}

impl Writer {
    fn new(folder: &Path) -> Result<Self, DemoError> {
        let open = |n: usize| {
            let path = folder.join(format!("{}-{}.jsonl", SOURCES[n / FILES], n % FILES));
            let file = fs::File::create(&path).map_err(|e| DemoError::io("create", &path, &e))?;
            Ok((path, BufWriter::new(file)))
        };
        let files = (0..SOURCES.len() * FILES)
            .map(open)
            .collect::<Result<_, DemoError>>()?;
        Ok(Self {
            files,
            documents: 0,
            bytes: 0,
        })
    }

    /// Adds a text file. With `own` (the user named it) every text is added, JSONL line by line.
    fn add_file(&mut self, path: &Path, own: bool) -> Result<u64, DemoError> {
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        if !own && (!EXTENSIONS.contains(&extension) || self.bytes >= DEFAULT_BYTES) {
            return Ok(0);
        }
        let Some(text) = fs::read(path).ok().and_then(|b| String::from_utf8(b).ok()) else {
            return Ok(0);
        };
        let source = path.display().to_string();
        let of = usize::from(!CODE.contains(&extension));
        if own && extension == "jsonl" {
            for line in text.lines() {
                let value: serde_json::Value = serde_json::from_str(line)
                    .map_err(|e| DemoError::Usage(format!("{source}: not JSONL: {e}")))?;
                let text = value
                    .get("text")
                    .and_then(|t| t.as_str())
                    .unwrap_or_default();
                self.add(of, text, &source)?;
            }
        } else {
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let cut = rest.floor_char_boundary(DOCUMENT_BYTES_MAX.min(rest.len()));
                let (document, more) = rest.split_at(cut);
                self.add(of, document, &source)?;
                rest = more;
            }
        }
        Ok(text.len() as u64)
    }

    /// Adds a document of the source number `of`.
    fn add(&mut self, of: usize, text: &str, source: &str) -> Result<(), DemoError> {
        if text.is_empty() {
            return Ok(());
        }
        // Documents are spread over the files of their source in turn.
        let file = of * FILES + (self.documents % FILES as u64) as usize;
        let line = serde_json::json!({ "text": text, "source": source });
        let (path, out) = &mut self.files[file];
        writeln!(out, "{line}").map_err(|e| DemoError::io("write", path, &e))?;
        self.documents += 1;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn finish(self) -> Result<Corpus, DemoError> {
        if self.documents == 0 {
            return Err(DemoError::Usage(
                "no text found: give a text file, a folder or a .jsonl file with --input".into(),
            ));
        }
        let mut sources: Vec<(&str, Vec<PathBuf>)> =
            SOURCES.iter().map(|name| (*name, Vec::new())).collect();
        for (n, (path, mut out)) in self.files.into_iter().enumerate() {
            out.flush().map_err(|e| DemoError::io("write", &path, &e))?;
            if fs::metadata(&path).is_ok_and(|m| m.len() > 0) {
                sources[n / FILES].1.push(path);
            } else {
                let _ = fs::remove_file(&path);
            }
        }
        sources.retain(|(_, files)| !files.is_empty());
        Ok(Corpus {
            sources,
            documents: self.documents,
            bytes: self.bytes,
        })
    }
}
