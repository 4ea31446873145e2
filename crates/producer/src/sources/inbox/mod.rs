//! Reading inboxes (`source.inbox`): each poll looks at a writer's folder from the newest file on that was read, so its
//! cost does not grow with the files of an inbox. `folder` lists and pins, `delete` deletes files that were committed; the
//! rules are `batchweave_core::inbox`.

mod delete;
mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use batchweave_core::inbox::{Object, Read, is_writer, look};
use futures::stream::{StreamExt, TryStreamExt};

pub(crate) use self::delete::FileDeleter;
use self::folder::Folder;
use super::find::OpenStore;
use super::{InputFile, InputFinder, InputList, NamedPaths, Share, SourceError};

/// Writers that are looked at at the same time.
const LOOKS_AT_ONCE: usize = 16;
/// Looks at a writer whose files are deleted meanwhile; each deletes at least one of those that were listed.
const LOOKS: usize = 100;

/// The inboxes of one source, and what was read of them.
#[derive(Debug)]
pub(crate) struct Inboxes {
    all: Vec<Inbox>,
    share: Share,
}

#[derive(Debug)]
struct Inbox {
    folder: Folder,
    read: BTreeMap<String, Read>,
    /// Writers whose `end` was seen, and whether a later look found nothing new.
    ended: BTreeMap<String, bool>,
}

impl Inboxes {
    /// Opens the inboxes at `paths`, of which this share of the writers is read. `list` has the files that were read.
    pub(crate) async fn open(
        paths: &[String],
        share: Share,
        open: &OpenStore,
        list: &InputList,
    ) -> Result<Self, SourceError> {
        let mut all = Vec::new();
        for path in paths {
            all.push(Inbox {
                folder: Folder::open(path, open).await?,
                read: BTreeMap::new(),
                ended: BTreeMap::new(),
            });
        }
        let mut inboxes = Self { all, share };
        inboxes.joined(&list.files);
        Ok(inboxes)
    }

    /// Returns the files that were not there at the last look, each writer's in order.
    pub(crate) async fn look(&mut self) -> Result<Vec<InputFile>, SourceError> {
        let mut files = Vec::new();
        for inbox in &mut self.all {
            files.extend(inbox.look(self.share).await?);
        }
        Ok(files)
    }

    /// Notes that `files` are in the list now.
    pub(crate) fn joined(&mut self, files: &[InputFile]) {
        for file in files {
            for inbox in &mut self.all {
                inbox.joined(file);
            }
        }
    }

    /// Returns whether all of this share's `writers` have ended, and all their files were found.
    pub(crate) fn ended(&self, writers: &[String]) -> bool {
        let ended = |writer: &String| {
            self.all.iter().any(|inbox| {
                inbox.ended.get(writer) == Some(&true)
                    || inbox.read.get(writer) == Some(&Read::Job)
                    || !inbox.owned(self.share, writer)
            })
        };
        !writers.is_empty() && writers.iter().all(ended)
    }
}

impl Inbox {
    /// Files are shared by their writer, so that one producer reads all of a writer in order.
    fn owned(&self, share: Share, writer: &str) -> bool {
        share.owns_file(&self.folder.name(writer, ""))
    }

    async fn look(&mut self, share: Share) -> Result<Vec<InputFile>, SourceError> {
        let writers = self.folder.writers().await?;
        let none = self.read.is_empty() && !writers.iter().any(|name| is_writer(name));
        if none && self.folder.is_of_writer().await? {
            let folder = self.folder.root();
            let why = "it is the folder of a writer: set source.paths to the folder above it";
            return Err(SourceError::Inbox {
                folder,
                why: why.to_owned(),
            });
        }
        let known = |writer: &&String| {
            self.read.get(*writer) != Some(&Read::Job) && self.ended.get(*writer) != Some(&true)
        };
        let own = writers.iter().filter(|name| is_writer(name));
        let own = own.filter(|name| self.owned(share, name)).filter(known);
        let looks: Vec<_> = own.map(|writer| self.look_at(writer)).collect();
        let looks = futures::stream::iter(looks).buffered(LOOKS_AT_ONCE);
        let looks: Vec<Look> = looks.try_collect().await?;
        self.check_gone(&writers)?;
        let mut files = Vec::new();
        for look in looks {
            if look.ended {
                let again = look.files.is_empty() && self.ended.contains_key(&look.writer);
                self.ended.insert(look.writer, again);
            }
            files.extend(look.files);
        }
        Ok(files)
    }

    /// Looks at the folder of `writer`. Another instance may delete committed files between their listing and the reading
    /// of their ends, so a file that is gone by then is looked for again.
    async fn look_at(&self, writer: &str) -> Result<Look, SourceError> {
        for _ in 1..LOOKS {
            match self.look_once(writer).await {
                Err(SourceError::Unreadable { why, .. }) if why.kind() == ErrorKind::NotFound => {}
                look => return look,
            }
        }
        self.look_once(writer).await
    }

    async fn look_once(&self, writer: &str) -> Result<Look, SourceError> {
        let nothing = Read::Nothing;
        let read = self.read.get(writer).unwrap_or(&nothing);
        let listed = self.folder.listed(writer, read).await?;
        let found = look(read, listed).map_err(|fault| self.fault(writer, fault.to_string()))?;
        if let Some(number) = found.begins_at {
            let folder = self.folder.name(writer, "");
            tracing::warn!(
                folder,
                first_file = number,
                "earlier files of this writer were deleted; reads the others"
            );
        }
        let files = if found.job {
            self.folder.job(writer).await?
        } else {
            let files = found.files.into_iter().map(|(_, listed)| listed);
            self.folder.pin(writer, files.collect()).await?
        };
        Ok(Look {
            writer: writer.to_owned(),
            ended: found.ended,
            files,
        })
    }

    /// Fails if the folder of a writer that was read is gone.
    fn check_gone(&self, writers: &[String]) -> Result<(), SourceError> {
        let there: BTreeSet<&String> = writers.iter().collect();
        let mut gone = self.read.iter().filter(|(writer, read)| {
            matches!(read, Read::UpTo { .. })
                && !there.contains(writer)
                && self.ended.get(*writer) != Some(&true)
        });
        match gone.next() {
            Some((writer, _)) => Err(self.fault(
                writer,
                "its files are gone, and the writer has not ended: restore them, or give the writer another name".to_owned(),
            )),
            None => Ok(()),
        }
    }

    fn fault(&self, writer: &str, why: String) -> SourceError {
        SourceError::Inbox {
            folder: self.folder.name(writer, ""),
            why,
        }
    }

    fn joined(&mut self, file: &InputFile) {
        let Some((writer, name)) = self.folder.writer_of(&file.pin.name) else {
            return;
        };
        let read = match Object::named(name) {
            Object::File(number) => Read::UpTo {
                number,
                size: file.pin.size,
                fingerprint: file.pin.fingerprint.clone(),
            },
            _ => Read::Job,
        };
        let newer = match (self.read.get(writer), &read) {
            (Some(Read::UpTo { number: was, .. }), Read::UpTo { number, .. }) => number > was,
            _ => true,
        };
        if newer {
            self.read.insert(writer.to_owned(), read);
        }
    }
}

impl InputFinder {
    /// Finds all files in the inboxes of `source`, or of `[source]`.
    pub(super) async fn in_inboxes(
        &self,
        source: Option<&NamedPaths>,
    ) -> Result<InputList, SourceError> {
        let mut inboxes = self.inboxes(source, &InputList::default()).await?;
        let files = inboxes.look().await?;
        Ok(InputList::of(files))
    }

    /// Opens the inboxes of `source`, or of `[source]`, of which the files of `list` were read.
    pub(crate) async fn inboxes(
        &self,
        source: Option<&NamedPaths>,
        list: &InputList,
    ) -> Result<Inboxes, SourceError> {
        let paths = source.map_or(&self.paths, |source| &source.paths);
        let of_source = source.and_then(|source| source.grows.as_ref());
        let share = of_source.map(|(_, share)| *share).or(self.share);
        Inboxes::open(
            paths,
            share.unwrap_or(Share::ALL),
            self.open_inbox.as_ref(),
            list,
        )
        .await
    }
}

/// One look at a writer.
struct Look {
    writer: String,
    ended: bool,
    files: Vec<InputFile>,
}

/// Returns why a file is not the one that its name in an inbox says, from its metadata `batchweave.writer` and
/// `batchweave.number`; a file that has none is accepted.
pub(super) fn foreign(name: &str, writer: Option<&str>, number: Option<&str>) -> Option<String> {
    let mut segments = name.rsplit('/');
    let (file, folder) = (segments.next()?, segments.next()?);
    if writer.is_some_and(|writer| writer != folder) {
        let writer = writer.unwrap_or_default();
        return Some(format!(
            "it is a file of writer {writer:?}, and lies in the folder of {folder:?}"
        ));
    }
    match (Object::named(file), number) {
        (Object::File(is), Some(number)) if number != is.to_string() => Some(format!(
            "it is file {number} of its writer, under the name of file {is}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
