//! The first samples of a tar with all of their fields, for a survey.

use std::io::Read;

use serde_json::{Map, Value};

use super::MemberKind;
use super::members::Members;
use crate::sources::unit_reader::Outcome;

/// Most bytes of a member that are read.
const MEMBER_BYTES_MAX: u64 = 1 << 20;

/// Returns the first samples of a tar, at most `most`, and the bytes of the tar that hold them. Texts and JSON have their
/// values, all other members their size in bytes.
pub(in crate::sources) fn first_samples(
    stream: Box<dyn Read + Send>,
    most: usize,
) -> Outcome<(Vec<Value>, u64)> {
    let mut members = Members::new(stream, 0);
    let (mut samples, mut sample) = (Vec::new(), Map::new());
    let mut key = Vec::new();
    while let Some(member) = members.next()? {
        if member.key != key {
            samples.extend(whole(std::mem::take(&mut sample)));
            if samples.len() == most {
                return Ok((samples, members.scan()));
            }
            key.clone_from(&member.key);
        }
        let field = member.field.clone();
        let is_read = is_readable(&field) && !member.sparse && member.size <= MEMBER_BYTES_MAX;
        let value = if is_read {
            value(&field, &members.read(&member)?)
        } else {
            members.pass(&member)?;
            Value::from(member.size)
        };
        sample.insert(field, value);
    }
    samples.extend(whole(sample));
    Ok((samples, members.scan()))
}

fn whole(sample: Map<String, Value>) -> Option<Value> {
    (!sample.is_empty()).then_some(Value::Object(sample))
}

fn is_readable(field: &str) -> bool {
    let extension = field.rsplit('.').next();
    extension.is_some_and(|name| name == "txt" || name == "text")
        || MemberKind::from_field(field) == MemberKind::Json
}

fn value(field: &str, data: &[u8]) -> Value {
    if MemberKind::from_field(field) == MemberKind::Json {
        return serde_json::from_slice(data).unwrap_or_default();
    }
    std::str::from_utf8(data).map_or(Value::Null, Value::from)
}
