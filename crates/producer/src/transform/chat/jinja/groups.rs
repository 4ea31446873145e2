//! Jinja2's filters that order or divide.

use std::rc::Rc;

use super::arguments::{int_of, is_given, text_or, truth};
use super::compare::equal;
use super::keys::{Path, lowered, sort_keyed};
use super::value::{Given, Made, Value, fail};

pub(super) fn groupby(value: &Value, given: Given) -> Made<Value> {
    let names = ["attribute", "default", "case_sensitive"];
    let [attribute, default, case] = given.bind("groupby", names, 1)?;
    let path = Path::parse(&attribute.unwrap_or(Value::None))?;
    let case = truth(case)?;
    let mut items = Vec::new();
    for item in value.items()? {
        let key = path.get(&item, default.as_ref())?;
        items.push((lowered(key, case), item));
    }
    sort_keyed(&mut items, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in items {
        match groups.last_mut() {
            Some((last, group)) if equal(last, &key)? => group.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let group = |(key, items): (Value, Vec<Value>)| {
        // The name of a group keeps the case of its first item.
        let name = if case {
            key
        } else {
            path.get(&items[0], default.as_ref())?
        };
        Ok(Value::Group(Rc::new(vec![name, Value::list(items)])))
    };
    Ok(Value::list(
        groups.into_iter().map(group).collect::<Made<_>>()?,
    ))
}

pub(super) fn dictsort(value: &Value, given: Given) -> Made<Value> {
    let [case, by, reverse] = given.bind("dictsort", ["case_sensitive", "by", "reverse"], 0)?;
    let Value::Dict(dict) = value else {
        value.defined()?;
        return fail(format!("dictsort of a {}", value.type_name()));
    };
    let part = text_or("key", by, "dictsort")?;
    let case = truth(case)?;
    let mut pairs = Vec::new();
    for (key, value) in &dict.entries {
        let compared = match part.as_str() {
            "key" => key,
            "value" => value,
            _ => return fail("You can only sort by either \"key\" or \"value\""),
        };
        let pair = Value::tuple(vec![key.clone(), value.clone()]);
        pairs.push((lowered(compared.clone(), case), pair));
    }
    sort_keyed(&mut pairs, truth(reverse)?)?;
    Ok(Value::list(
        pairs.into_iter().map(|(_, pair)| pair).collect(),
    ))
}

pub(super) fn batch(value: &Value, given: Given) -> Made<Value> {
    let [size, fill] = given.bind("batch", ["linecount", "fill_with"], 1)?;
    let Ok(size @ 1..) = usize::try_from(int_of(size, 0, "batch")?) else {
        return fail("batch: a size below 1 is not supported");
    };
    let mut batches = Vec::new();
    for chunk in value.items()?.chunks(size) {
        let mut batch = chunk.to_vec();
        if let Some(fill) = is_given(fill.clone())
            && size < 1 << 16
        {
            batch.resize(size, fill);
        }
        batches.push(Value::list(batch));
    }
    Ok(Value::generator(batches))
}

pub(super) fn slices(value: &Value, given: Given) -> Made<Value> {
    let [count, fill] = given.bind("slice", ["slices", "fill_with"], 1)?;
    let Ok(count @ 1..=1_000_000) = usize::try_from(int_of(count, 0, "slice")?) else {
        return fail("slice: such a number is not supported");
    };
    let items = value.items()?;
    let each = items.len() / count;
    let more = items.len() % count;
    let mut made = Vec::new();
    let mut at = 0;
    for n in 0..count {
        let length = each + usize::from(n < more);
        let mut slice = items[at..at + length].to_vec();
        at += length;
        if let Some(fill) = is_given(fill.clone())
            && n >= more
        {
            slice.push(fill);
        }
        made.push(Value::list(slice));
    }
    Ok(Value::generator(made))
}
