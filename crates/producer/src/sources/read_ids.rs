//! Opens files that hold nothing but ids.

use super::file_stream::FileStream;
use super::ids::megatron::MegatronIds;
use super::ids::npy::{NpyIds, NpyLayout};
use super::read_text::open_array;
use super::unit_reader::{Opened, Opening, ReadFailure};
use super::{ReadContent, Reason, SourceError};

/// Opens one of Megatron's files. The file of a pair that is listed first has its documents, and the other one none:
/// files before a restart's point may change, and both of a pair must not.
pub(super) fn open_pair<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let file = opening.stream.file;
    let unpaired = |detail: &str| SourceError::Megatron {
        file: file.pin.name.clone(),
        detail: detail.to_owned(),
    };
    let Some(files) = opening.files else {
        return Err(unpaired("one file alone").into());
    };
    let name = file.pin.name.as_str();
    let (partner, is_index) = if let Some(stem) = name.strip_suffix(".idx") {
        (format!("{stem}.bin"), true)
    } else if let Some(stem) = name.strip_suffix(".bin") {
        (format!("{stem}.idx"), false)
    } else {
        return Err(unpaired("neither a .idx nor a .bin file").into());
    };
    let at = opening.at.file as usize;
    let is_partner = |n: &usize| files.get(*n).is_some_and(|f| f.pin.name == partner);
    // Sorted names have the two next to each other.
    let near = [at.wrapping_sub(1), at + 1].into_iter().find(is_partner);
    let Some(n) = near.or_else(|| (0..files.len()).find(is_partner)) else {
        return Err(unpaired(&format!("{partner} is not in the input")).into());
    };
    let Some(partner) = files.get(n).filter(|_| n > at) else {
        return Ok(None);
    };
    let (index, data) = if is_index {
        (file, partner)
    } else {
        (partner, file)
    };
    let limit = opening.options.max_document_bytes;
    let ids = MegatronIds::open(index, data, opening.at.unit, limit)?;
    Ok(ids.map(|ids| Box::new(ids) as _))
}

/// Opens a .npy file: documents of ids, or one array.
pub(super) fn open_npy<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let ReadContent::Ids { end_token } = opening.options.content else {
        return open_array(opening);
    };
    let (at, stream) = (opening.at, opening.stream);
    let mut bytes = stream.try_open_at(0).map_err(ReadFailure::Io)?;
    let read = NpyLayout::read(&mut bytes).map_err(ReadFailure::Io)?;
    let layout = read.map_err(|detail| Reason::Npy { detail })?;
    check_length(&layout, stream)?;
    let place = (at.unit, at.offset);
    let offset = layout.offset(place.0, place.1);
    if offset != layout.data_at() {
        bytes = stream.try_open_at(offset).map_err(ReadFailure::Io)?;
    }
    let limit = opening.options.max_document_bytes;
    let ids = NpyIds::new(layout, bytes, place, end_token, limit);
    Ok(Some(Box::new(ids)))
}

fn check_length(layout: &NpyLayout, stream: &FileStream<'_>) -> Result<(), Reason> {
    let (wanted, size) = (layout.file_bytes(), stream.file.pin.size);
    if !stream.is_plain() || wanted == size {
        return Ok(());
    }
    let detail = format!("has {size} bytes and needs {wanted} for its shape; write it again");
    Err(Reason::Npy { detail })
}
