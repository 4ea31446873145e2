//! Samples in tar shards: neighbouring members with one key, as the webdataset package groups them. `members` reads the
//! members, `preview` the first samples with all of their fields.

use std::collections::BTreeSet;
use std::io::Read;

use super::unit_reader::ReadFailure;
use super::{Cell, Reason};
use members::{Member, Members};
pub(super) use preview::first_samples;

mod members;
mod preview;

/// Most fields of a sample that a message names.
const FIELDS_NAMED: usize = 6;
/// Least bytes for the names of a sample's fields, whatever the limit of a document.
const NAMES_BYTES: u64 = 1 << 20;
/// Bytes that a field takes in memory beside its name.
const NAME_OVERHEAD_BYTES: u64 = 64;

/// The content of a member, by the last extension of its name, as webdataset decodes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    /// An array as numpy saves it.
    Npy,
    /// A whole number in decimal digits.
    Number,
    Json,
    /// Text, or a form that the trainer decodes.
    Bytes,
}

impl MemberKind {
    /// Returns the kind of the members of `field`, for example `seg.png`.
    pub(crate) fn from_field(field: &str) -> Self {
        let extension = field.rsplit('.').next().unwrap_or(field);
        match extension.to_ascii_lowercase().as_str() {
            "npy" => Self::Npy,
            "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => Self::Number,
            "json" | "jsn" => Self::Json,
            _ => Self::Bytes,
        }
    }
}

/// Returns the alternatives in `field`, as in `jpg;jpeg;png`.
pub(crate) fn alternatives(field: &str) -> impl Iterator<Item = &str> {
    field
        .split(';')
        .map(str::trim)
        .filter(|one| !one.is_empty())
}

/// The place of a text in a sample, as `source.field` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextField<'a> {
    /// The field of the sample.
    pub(crate) member: &'a str,
    /// The key in the JSON of that field.
    pub(crate) json: Option<&'a str>,
}

impl<'a> TextField<'a> {
    /// Returns the place that `field` names: `json.caption` is a key in JSON, and the default `text` stands for `txt`.
    pub(crate) fn new(field: &'a str) -> Self {
        let (member, json) = match field.strip_prefix("json.") {
            Some(key) => ("json", Some(key)),
            None if field == "text" => ("txt;text", None),
            None => (field, None),
        };
        Self { member, json }
    }
}

/// A sample of a shard.
pub(super) struct ShardSample {
    pub(super) key: String,
    /// The wanted fields; none of a sample that is not wanted.
    pub(super) cells: Result<Vec<Cell>, Reason>,
}

/// A cursor over the samples of a shard.
pub(super) struct ShardSamples {
    members: Members,
    /// For each cell the fields of which the first one that the sample has is taken.
    wanted: Vec<Vec<String>>,
    /// Most bytes of a sample.
    limit: u64,
    /// The first member of the next sample, whose data is not read yet.
    next: Option<Member>,
    ended: bool,
}

impl ShardSamples {
    /// Returns a cursor over the samples of a decompressed tar from `offset` on, where `stream` begins.
    pub(super) fn new(
        stream: Box<dyn Read + Send>,
        offset: u64,
        (wanted, limit): (&[String], u64),
    ) -> Self {
        let lower = |field: &String| alternatives(field).map(str::to_lowercase).collect();
        Self {
            members: Members::new(stream, offset),
            wanted: wanted.iter().map(lower).collect(),
            limit,
            next: None,
            ended: false,
        }
    }

    /// Returns the offset behind the last sample that was returned, from which the next one can be read.
    pub(super) fn offset(&self) -> u64 {
        self.members.scan()
    }

    /// Returns the next sample; `None` at the end. One that is not `owned` is passed over unread.
    pub(super) fn next(&mut self, owned: bool) -> Result<Option<ShardSample>, ReadFailure> {
        let first = match self.next.take() {
            Some(first) => Some(first),
            None if self.ended => None,
            None => self.members.next()?,
        };
        let Some(mut member) = first else {
            self.members.finish()?;
            return Ok(None);
        };
        let key = member.key.clone();
        let mut sample = Sample::new(&self.wanted, self.limit);
        loop {
            if owned {
                sample.add(&member, &mut self.members)?;
            } else {
                self.members.pass(&member)?;
            }
            match self.members.next()? {
                Some(next) if next.key == key => member = next,
                next => {
                    self.ended = next.is_none();
                    self.next = next;
                    break;
                }
            }
        }
        let cells = if owned {
            sample.cells()
        } else {
            Ok(Vec::new())
        };
        let key = String::from_utf8_lossy(&key).into_owned();
        Ok(Some(ShardSample { key, cells }))
    }
}

/// A sample while its members are read.
struct Sample<'a> {
    wanted: &'a [Vec<String>],
    limit: u64,
    /// For each cell the place of its field among the alternatives, and the data.
    held: Vec<Option<(usize, Vec<u8>)>>,
    fields: BTreeSet<String>,
    names_bytes: u64,
    /// The first fault; nothing is read after it.
    fault: Option<Reason>,
}

impl<'a> Sample<'a> {
    fn new(wanted: &'a [Vec<String>], limit: u64) -> Self {
        Self {
            wanted,
            limit,
            held: vec![None; wanted.len()],
            fields: BTreeSet::new(),
            names_bytes: 0,
            fault: None,
        }
    }

    /// Reads the data of a member if a cell wants it, and passes over it otherwise.
    fn add(&mut self, member: &Member, members: &mut Members) -> Result<(), ReadFailure> {
        let mut cells = self.accept(member).unwrap_or_else(|fault| {
            self.held.clear();
            self.fields.clear();
            self.fault = Some(fault);
            Vec::new()
        });
        let Some(last) = cells.pop() else {
            return members.pass(member);
        };
        let data = members.read(member)?;
        for cell in cells {
            self.hold(cell, data.clone());
        }
        self.hold(last, data);
        Ok(())
    }

    fn hold(&mut self, (cell, rank): (usize, usize), data: Vec<u8>) {
        if let Some(held) = self.held.get_mut(cell) {
            *held = Some((rank, data));
        }
    }

    /// Returns the cells that want the member, each with its place among the alternatives.
    fn accept(&mut self, member: &Member) -> Result<Vec<(usize, usize)>, Reason> {
        if self.fault.is_some() {
            return Ok(Vec::new());
        }
        let name = &member.field;
        self.names_bytes += name.len() as u64 + NAME_OVERHEAD_BYTES;
        let limit = self.limit;
        if self.names_bytes > limit.max(NAMES_BYTES) {
            return Err(Reason::TooLong { limit });
        }
        if !self.fields.insert(name.clone()) {
            let field = name.clone();
            return Err(Reason::TwoMembers { field });
        }
        let wanting = self.wanted.iter().zip(&self.held).enumerate();
        let cells: Vec<_> = wanting
            .filter_map(|(cell, (fields, held))| {
                let rank = fields.iter().position(|wanted| wanted == name)?;
                let better = held.as_ref().is_none_or(|(held, _)| rank < *held);
                better.then_some((cell, rank))
            })
            .collect();
        if cells.is_empty() {
            return Ok(cells);
        }
        if member.sparse {
            let field = name.clone();
            return Err(Reason::SparseMember { field });
        }
        let held = self.held.iter().flatten();
        let held: u64 = held.map(|(_, data)| data.len() as u64).sum();
        let added = member.size.saturating_mul(cells.len() as u64);
        if held.saturating_add(added) > limit {
            return Err(Reason::TooLong { limit });
        }
        Ok(cells)
    }

    /// Returns the cells of the whole sample.
    fn cells(self) -> Result<Vec<Cell>, Reason> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let fields = described(&self.fields);
        let cells = self.held.into_iter().zip(self.wanted);
        let cell = |(held, wanted): (Option<(usize, Vec<u8>)>, &Vec<String>)| match held {
            Some((_, data)) => Ok(Cell::Bytes(data.into())),
            None => Err(Reason::NoMember {
                field: wanted.join(";"),
                fields: fields.clone(),
            }),
        };
        cells.map(cell).collect()
    }
}

/// Returns the first fields of a sample, for a message.
fn described(fields: &BTreeSet<String>) -> String {
    let first = fields.iter().take(FIELDS_NAMED);
    let quoted: Vec<String> = first.map(|field| format!("\"{field:.40}\"")).collect();
    let named = quoted.join(", ");
    match fields.len().saturating_sub(FIELDS_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
pub(super) mod tests;
