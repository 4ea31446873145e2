//! Walks the documents of one source in its order, from any position on. Reading is the caller's: blocks are opened
//! through [`Documents`], so that the producer, tests and measurements share one walk.

use super::cursor::Position;
use super::source::{OpenBlock, Quota, SourceOrder};
use crate::guards;

/// Opens the blocks of a source.
pub trait Documents {
    type Document;
    type Error;
    /// The documents of a block in the order of its files.
    type Reader: Iterator<Item = Result<Self::Document, Self::Error>>;

    /// Opens `open` at its document number `from`. The group's other blocks are opened next.
    fn open(&mut self, open: &OpenBlock, from: u64) -> Result<Self::Reader, Self::Error>;

    /// Returns the size of a document in bytes, which counts for the windows.
    fn bytes(document: &Self::Document) -> u64;
}

/// A block that the current group reads.
struct Member<R> {
    reader: R,
    quota: Quota,
    ended: bool,
}

/// The documents of a source from a position on.
pub struct Walk<'a, D: Documents> {
    order: &'a SourceOrder,
    documents: D,
    /// Number of passes; 0 repeats them for ever.
    passes: u64,
    /// The position of the next document.
    at: Position,
    members: Vec<Member<D::Reader>>,
    /// Whether `members` are those of the current group, at the window after the current one.
    opened: bool,
    /// The window's documents, in the order in which they are given.
    window: std::vec::IntoIter<D::Document>,
    loaded: bool,
}

impl<'a, D: Documents> Walk<'a, D> {
    /// Returns a walk that begins at `from`.
    pub fn new(order: &'a SourceOrder, documents: D, passes: u64, from: Position) -> Self {
        let mut at = from;
        if guards::repeats_document() {
            at.number = at.number.saturating_sub(1);
        }
        Self {
            order,
            documents,
            passes,
            at,
            members: Vec::new(),
            opened: false,
            window: Vec::new().into_iter(),
            loaded: false,
        }
    }

    /// Returns the next document and its position; `None` when all passes are over, or a pass holds no block.
    pub fn next_document(&mut self) -> Result<Option<(Position, D::Document)>, D::Error> {
        while self.order.groups() > 0 && (self.passes == 0 || self.at.pass < self.passes) {
            if self.at.group >= self.order.groups() {
                self.at = Position::pass(self.at.pass + 1);
                continue;
            }
            if let Some(document) = self.from_window()? {
                let at = self.at;
                self.at.number += 1;
                return Ok(Some((at, document)));
            }
            self.leave_window();
        }
        Ok(None)
    }

    /// Returns the next document of the current window, which is loaded first.
    fn from_window(&mut self) -> Result<Option<D::Document>, D::Error> {
        if !self.order.is_shuffled() {
            return self.in_order();
        }
        if !self.loaded {
            self.open_group()?;
            let documents = self.read_window()?;
            self.window = self.shuffled(documents).into_iter();
            self.loaded = true;
            for _ in 0..self.at.number {
                self.window.next();
            }
        }
        Ok(self.window.next())
    }

    /// Without shuffle, a document is given as it is read.
    fn in_order(&mut self) -> Result<Option<D::Document>, D::Error> {
        if !self.opened {
            self.open_members(self.at.number)?;
        }
        self.members
            .first_mut()
            .and_then(|m| m.reader.next())
            .transpose()
    }

    /// Opens the blocks of the group at the current window, unless they are open.
    fn open_group(&mut self) -> Result<(), D::Error> {
        if self.opened {
            return Ok(());
        }
        self.open_members(0)?;
        let window = self.at.window;
        for _ in 0..window {
            // Blocks that can be opened at a later window are there already.
            self.read_members(|quota| quota.first(window).is_none())?;
        }
        Ok(())
    }

    fn open_members(&mut self, from: u64) -> Result<(), D::Error> {
        self.members.clear();
        for open in self.order.group(self.at.pass, self.at.group) {
            let first = open.quota.first(self.at.window).unwrap_or(0);
            self.members.push(Member {
                reader: self.documents.open(&open, first + from)?,
                quota: open.quota,
                ended: false,
            });
        }
        self.opened = true;
        Ok(())
    }

    fn read_window(&mut self) -> Result<Vec<D::Document>, D::Error> {
        self.read_members(|_| true)
    }

    /// Reads the next documents of each block that `wanted` selects, up to its quota.
    fn read_members(
        &mut self,
        wanted: impl Fn(Quota) -> bool,
    ) -> Result<Vec<D::Document>, D::Error> {
        let mut read = Vec::new();
        for member in self.members.iter_mut().filter(|m| wanted(m.quota)) {
            let (mut units, mut bytes) = (0, 0);
            while !member.ended && !member.quota.is_met(units, bytes) {
                let Some(document) = member.reader.next().transpose()? else {
                    member.ended = true;
                    break;
                };
                units += 1;
                bytes += D::bytes(&document);
                read.push(document);
            }
        }
        Ok(read)
    }

    fn shuffled(&self, documents: Vec<D::Document>) -> Vec<D::Document> {
        let Position {
            pass,
            group,
            window,
            ..
        } = self.at;
        let mut read: Vec<Option<D::Document>> = documents.into_iter().map(Some).collect();
        let order = self.order.order(pass, group, window, read.len() as u32);
        let take = |n: u32| read.get_mut(n as usize).and_then(Option::take);
        order.into_iter().filter_map(take).collect()
    }

    /// Goes on to the next window, or to the next group when all blocks of this one have ended.
    fn leave_window(&mut self) {
        let more = self.order.is_shuffled() && self.members.iter().any(|member| !member.ended);
        self.at = Position {
            window: if more { self.at.window + 1 } else { 0 },
            group: self.at.group + u64::from(!more),
            number: 0,
            ..self.at
        };
        self.opened = more;
        self.loaded = false;
    }
}
