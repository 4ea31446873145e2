//! Reading inboxes (`source.inbox`): each poll looks at a writer's folder from the newest file on that was read, so its
//! cost does not grow with the files of an inbox. `folder` lists and pins, `delete` deletes files that were committed; the
//! rules are `batchweave_core::inbox`.

mod bad_folders;
mod delete;
mod folder;
mod local;
pub(super) mod owner;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use batchweave_core::inbox::{Fault, Object, Read, is_writer, look};
use futures::stream::StreamExt;

use self::bad_folders::BadFolders;
pub(crate) use self::bad_folders::SharedGauge;
pub(crate) use self::delete::FileDeleter;
use self::folder::Folder;
use super::open_store::OpenStore;
use super::{InputFile, InputFinder, InputList, NamedPaths, Portion, SourceError};

/// Writers that are looked at at the same time.
const LOOKS_AT_ONCE: usize = 16;
/// Looks at a writer whose files are deleted meanwhile; each deletes at least one of those that were listed.
const LOOKS: usize = 100;

/// The inboxes of one source, and what was read of them.
#[derive(Debug)]
pub(crate) struct Inboxes {
    all: Vec<Inbox>,
    share: Portion,
}

#[derive(Debug)]
struct Inbox {
    folder: Folder,
    read: BTreeMap<String, Read>,
    /// Writers whose `end` was seen, and whether a later look found nothing new.
    ended: BTreeMap<String, bool>,
    bad: BadFolders,
    /// Folders that the last look could read.
    good: usize,
}

impl Inboxes {
    /// Opens the inboxes at `paths`, of which this share of the writers is read. `list` has the files that were read.
    pub(crate) async fn open(
        paths: &[String],
        share: Portion,
        open: &OpenStore,
        list: &InputList,
    ) -> Result<Self, SourceError> {
        let mut all = Vec::new();
        for path in paths {
            all.push(Inbox {
                folder: Folder::open(path, open).await?,
                read: BTreeMap::new(),
                ended: BTreeMap::new(),
                bad: BadFolders::default(),
                good: 0,
            });
        }
        let mut inboxes = Self { all, share };
        inboxes.joined(&list.files);
        Ok(inboxes)
    }

    /// Returns the files that were not there at the last look, each writer's in order. A folder that cannot be read is
    /// left out, so that it does not stop the other writers.
    pub(crate) async fn poll(&mut self) -> Result<Vec<InputFile>, SourceError> {
        let mut files = Vec::new();
        for inbox in &mut self.all {
            files.extend(inbox.poll(self.share).await?);
        }
        Ok(files)
    }

    /// Fails if the last look could read no folder, and some are bad.
    pub(crate) fn check(&mut self) -> Result<(), SourceError> {
        if self.all.iter().any(|inbox| inbox.good > 0) {
            return Ok(());
        }
        let first = self.all.iter_mut().find_map(|inbox| inbox.bad.take_first());
        first.map_or(Ok(()), Err)
    }

    /// Says which folders are left out; returns their number.
    pub(crate) fn report(&mut self) -> usize {
        let bad = self.all.iter_mut().map(|inbox| &mut inbox.bad);
        bad.map(|bad| {
            bad.report();
            bad.count()
        })
        .sum()
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
    fn owned(&self, share: Portion, writer: &str) -> bool {
        share.owns_file(&self.folder.name(writer, ""))
    }

    /// Fails where the folder is that of a writer, not the one above the folders of writers.
    async fn check_folder(&self, names: &[String]) -> Result<(), SourceError> {
        let none = self.read.is_empty() && !names.iter().any(|name| is_writer(name));
        if none && self.folder.is_of_writer().await? {
            let folder = self.folder.root();
            let why = "it is the folder of a writer: set source.paths to the folder above it";
            return Err(SourceError::Inbox {
                folder,
                why: why.to_owned(),
            });
        }
        Ok(())
    }

    async fn poll(&mut self, share: Portion) -> Result<Vec<InputFile>, SourceError> {
        let folders = self.folder.writers().await?;
        self.check_folder(&folders.names).await?;
        let known = |writer: &&String| {
            self.read.get(*writer) != Some(&Read::Job)
                && self.ended.get(*writer) != Some(&true)
                && !self.bad.stays(writer)
        };
        let mine = |name: &&String| is_writer(name) && self.owned(share, name);
        let own = folders.names.iter().filter(mine).filter(known);
        let this = &*self;
        let looking = own.map(|writer| async move { (writer.clone(), this.look_at(writer).await) });
        let at_once = futures::stream::iter(looking.collect::<Vec<_>>()).buffered(LOOKS_AT_ONCE);
        let looks: Vec<_> = at_once.collect().await;
        let own_links = folders.links.iter().filter(|link| self.owned(share, link));
        let why = "it is a link, which is not followed: remove it";
        let links: Vec<_> = own_links
            .map(|link| (link, self.fault(link, why)))
            .collect();
        self.good = 0;
        self.bad.begin();
        let mut files = Vec::new();
        for (writer, look) in looks {
            match look {
                Ok(look) => files.extend(self.looked(&writer, look)),
                Err(LookFault { error, stays }) => self.bad.bad(&writer, error, stays),
            }
        }
        for (link, error) in links {
            self.bad.bad(link, error, false);
        }
        self.note_gone(&folders.names);
        self.bad.end();
        Ok(files)
    }

    /// Notes that the folder of `writer` could be read; returns its new files.
    fn looked(&mut self, writer: &str, look: Look) -> Vec<InputFile> {
        self.good += 1;
        if look.ended {
            let again = look.files.is_empty() && self.ended.contains_key(writer);
            self.ended.insert(writer.to_owned(), again);
        }
        look.files
    }

    /// Looks at the folder of `writer`. Another instance may delete committed files between their listing and the reading
    /// of their ends, so a file that is gone by then is looked for again.
    async fn look_at(&self, writer: &str) -> Result<Look, LookFault> {
        let is_gone = |error: &SourceError| matches!(error, SourceError::Unreadable { why, .. } if why.kind() == ErrorKind::NotFound);
        for _ in 1..LOOKS {
            match self.look_once(writer).await {
                Err(fault) if is_gone(&fault.error) => {}
                look => return look,
            }
        }
        self.look_once(writer).await
    }

    async fn look_once(&self, writer: &str) -> Result<Look, LookFault> {
        let nothing = Read::Nothing;
        let read = self.read.get(writer).unwrap_or(&nothing);
        let listed = self.folder.listed(writer, read).await?;
        let found = look(read, listed).map_err(|fault| LookFault {
            stays: matches!(fault, Fault::Rewound { .. } | Fault::Rewritten { .. }),
            error: self.fault(writer, &fault.to_string()),
        })?;
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
        let ended = found.ended;
        Ok(Look { ended, files })
    }

    /// Notes writers that were read and whose folders are gone.
    fn note_gone(&mut self, writers: &[String]) {
        let there: BTreeSet<&String> = writers.iter().collect();
        let gone = self.read.iter().filter(|(writer, read)| {
            matches!(read, Read::UpTo { .. })
                && !there.contains(writer)
                && self.ended.get(*writer) != Some(&true)
        });
        let gone: Vec<String> = gone.map(|(writer, _)| writer.clone()).collect();
        for writer in gone {
            let why = "its files are gone, and the writer has not ended: restore them, or give the writer another name";
            let error = self.fault(&writer, why);
            self.bad.bad(&writer, error, true);
        }
    }

    fn fault(&self, writer: &str, why: &str) -> SourceError {
        SourceError::Inbox {
            folder: self.folder.name(writer, ""),
            why: why.to_owned(),
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
    /// Finds all files in the inboxes of `source`.
    pub(super) async fn in_inboxes(&self, source: &NamedPaths) -> Result<InputList, SourceError> {
        let mut inboxes = self.inboxes(source, &InputList::default()).await?;
        let files = inboxes.poll().await?;
        if files.is_empty() {
            inboxes.check()?;
        }
        inboxes.report();
        Ok(InputList::of(files))
    }

    /// Opens the inboxes of `source`, of which the files of `list` were read.
    pub(crate) async fn inboxes(
        &self,
        source: &NamedPaths,
        list: &InputList,
    ) -> Result<Inboxes, SourceError> {
        let share = source.grows.as_ref().map(|(_, share)| *share);
        Inboxes::open(
            &source.paths,
            share.unwrap_or(Portion::ALL),
            self.open_inbox.as_ref(),
            list,
        )
        .await
    }
}

/// One look at a writer.
struct Look {
    ended: bool,
    files: Vec<InputFile>,
}

/// The reason why a folder is left out.
struct LookFault {
    error: SourceError,
    /// It is left out until a restart.
    stays: bool,
}

impl From<SourceError> for LookFault {
    fn from(error: SourceError) -> Self {
        Self {
            error,
            stays: false,
        }
    }
}

#[cfg(test)]
mod tests;
