//! Whole files as units: a text, or one array.

use super::file_stream::Stream;
use super::sniff::as_named;
use super::unit_reader::{FoundUnit, Opened, Opening, ReadFailure, UnitReader};
use super::whole::whole;
use super::{Format, InputFile, Reason, SourceError};

/// A file that is one unit.
struct WholeUnit<'a> {
    file: &'a InputFile,
    limit: u64,
    stream: Option<Stream>,
    /// The name alone says that the file is one text, so its content must agree.
    by_name: bool,
}

/// Opens a file that is one text.
pub(super) fn open_text<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let name = &opening.stream.file.pin.name;
    let by_name = opening.options.format == Format::Auto;
    match Format::refusal(name) {
        Some(why) if by_name => Err(SourceError::NoReader {
            first: name.clone(),
            number: 1,
            why,
        }
        .into()),
        _ => open(opening, by_name),
    }
}

/// Opens a file that is one array.
pub(super) fn open_array<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    open(opening, false)
}

fn open<'a>(opening: Opening<'a, '_>, by_name: bool) -> Opened<'a> {
    let (at, options) = (opening.at, opening.options);
    if at.unit > 0 || !options.share.owns(at.file, 0) {
        return Ok(None);
    }
    Ok(Some(Box::new(WholeUnit {
        file: opening.stream.file,
        limit: options.max_document_bytes,
        stream: Some(opening.stream.open_at(at.offset)?),
        by_name,
    })))
}

impl UnitReader for WholeUnit<'_> {
    fn next(&mut self, _: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        let Some(mut stream) = self.stream.take() else {
            return Ok(None);
        };
        let limit = self.limit;
        let read = whole(&mut stream, limit, self.file.pin.size).map_err(ReadFailure::Io)?;
        let content = match read {
            None => Err(Reason::TooLong { limit }),
            Some(text) if self.by_name => as_named(&self.file.pin.name, text)?,
            Some(text) => Ok(text),
        };
        Ok(Some(FoundUnit {
            number: 0,
            offset: 0,
            content: content.map(Into::into),
        }))
    }

    fn place(&self) -> (u64, u64) {
        (0, 0)
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn consumed(&self, _: Option<u64>, _: u64) -> u64 {
        0
    }
}
