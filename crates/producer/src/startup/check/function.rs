//! `--check` of the user's function: the first documents pass it twice, in two processes, with the same results.

use std::fmt::Write as _;
use std::sync::Arc;

use batchweave_core::ids::Hash;

use crate::config::{OnBadDocument, ProducerConfig};
use crate::sources::{Cell, FileReader, InputFile, InputList, Place, ReadOptions, UnitKind};
use crate::transform::DocumentTransform;
use crate::transform::function::{Applied, Prepared};

/// Most documents that pass the function.
const DOCUMENTS: usize = 1000;
/// Documents that pass it at a time.
const AT_ONCE: usize = 16;
/// Documents that are named of those for which it raises.
const NAMED: usize = 3;

/// The documents of some files, as they came out of the function.
#[derive(Debug, Default)]
struct Results {
    /// The place and a digest of each.
    digests: Vec<(Place, Hash)>,
    dropped: u64,
    /// The documents for which it raised: how many, and place and reason of the first ones.
    raised: u64,
    first_raised: Vec<(Place, String)>,
}

impl Results {
    /// Returns the places of documents that came out otherwise than in another run.
    fn differences(&self, other: &Self) -> Vec<Place> {
        let both = self.digests.iter().zip(&other.digests);
        both.filter(|(one, other)| one != other)
            .map(|((place, _), _)| *place)
            .collect()
    }

    /// Returns places and reasons of the first documents for which it raised.
    fn raised_words(&self, list: &InputList, options: &ReadOptions) -> String {
        let raised = self.first_raised.iter();
        raised
            .map(|(place, why)| format!("{}: {why}", place_name(place, list, options)))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Adds the documents of these places, and what the function made of them.
    fn add(&mut self, places: Vec<Place>, made: &Applied) {
        self.dropped += made.dropped;
        for (unit, place) in made.units.iter().zip(&places) {
            let Some(Err(why)) = unit.as_ref().map(|made| &made.unit.raw) else {
                continue;
            };
            self.raised += 1;
            if self.first_raised.len() < NAMED {
                self.first_raised.push((*place, why.to_string()));
            }
        }
        let digests = made.units.iter().map(|one| digest(one.as_ref()));
        self.digests.extend(places.into_iter().zip(digests));
    }
}

/// Returns the place in words: the file, and the line or row where it has several documents.
fn place_name(place: &Place, list: &InputList, options: &ReadOptions) -> String {
    let file = list.files.get(place.file as usize);
    let name = file.map_or("", |file| file.pin.name.as_str());
    match options.format.units(name, false) {
        UnitKind::Text => name.to_owned(),
        _ => format!("{name}:{}", place.unit + 1),
    }
}

/// Compares two runs over the first documents of `files`. Returns what it found, for people.
pub(super) fn compare(
    files: Vec<InputFile>,
    options: &ReadOptions,
    (config, transform): (&ProducerConfig, &Arc<DocumentTransform>),
) -> Result<String, String> {
    let list = InputList::of(files);
    let field = &config.source.field;
    let first = run(&list, options, (field, transform))?;
    transform.renew_function();
    let second = run(&list, options, (field, transform))?;
    let function = &config.transform.function;
    let different = first.differences(&second);
    let documents = first.digests.len();
    let named = first.raised_words(&list, options);
    let raised = first.raised;
    if raised > 0 && config.source.on_bad_document == OnBadDocument::Fail {
        return Err(format!(
            "{function} failed for {raised} of the first {documents} documents, and the first one would end the producer: {named}"
        ));
    }
    if let Some(place) = different.first() {
        let at = place_name(place, &list, options);
        let different = different.len();
        return Err(format!(
            "{function} made different documents of {different} of {documents} in two processes, first of {at}; a restart \
             then repeats documents that differ. Make it depend on its argument alone: seed random numbers by a field, \
             and sort what comes from a set"
        ));
    }
    let dropped = first.dropped;
    let mut text = format!(
        "{function} made the same of {documents} documents in two processes; it left out {dropped}"
    );
    if raised > 0 {
        let _ = write!(
            text,
            ", and failed for {raised}, which are left out as bad: {named}"
        );
    }
    Ok(text)
}

fn run(
    list: &InputList,
    options: &ReadOptions,
    (field, transform): (&str, &DocumentTransform),
) -> Result<Results, String> {
    let mut results = Results::default();
    for number in 0..list.files.len() as u32 {
        let from = Place::of_file(number);
        let opened = FileReader::open_in(list, options, from);
        let Some(mut reader) = opened.map_err(|why| why.to_string())? else {
            continue;
        };
        loop {
            let room = AT_ONCE.min(DOCUMENTS.saturating_sub(results.digests.len()));
            let mut units = Vec::with_capacity(room);
            while units.len() < room {
                match reader.next_unit().map_err(|why| why.to_string())? {
                    Some(unit) => units.push(unit),
                    None => break,
                }
            }
            if units.is_empty() {
                break;
            }
            let places: Vec<Place> = units.iter().map(|unit| unit.place).collect();
            results.add(places, &transform.prepare(field, units));
        }
    }
    Ok(results)
}

fn digest(made: Option<&Prepared>) -> Hash {
    let mut bytes = Vec::new();
    let units = made.into_iter();
    for unit in units.flat_map(|made| std::iter::once(&made.unit).chain(&made.more)) {
        match &unit.raw {
            Ok(raw) => {
                bytes.extend((raw.len() as u64).to_le_bytes());
                bytes.extend_from_slice(raw);
            }
            Err(why) => bytes.extend(why.to_string().into_bytes()),
        }
        for cell in &unit.cells {
            if let Cell::Bytes(cell) = cell {
                bytes.extend((cell.len() as u64).to_le_bytes());
                bytes.extend_from_slice(cell);
            }
        }
    }
    Hash::sha256(&bytes)
}
