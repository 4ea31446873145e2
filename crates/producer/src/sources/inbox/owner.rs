//! The writer and the number that a file in an inbox says it has.

use batchweave_core::inbox::Object;

/// Returns why a file is not the one that its name in an inbox says, from its metadata `batchweave.writer` and
/// `batchweave.number`; a file that has none is accepted.
pub(in crate::sources) fn foreign(
    name: &str,
    writer: Option<&str>,
    number: Option<&str>,
) -> Option<String> {
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
