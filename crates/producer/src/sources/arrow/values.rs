//! Values of Arrow's arrays, with the meaning that a Parquet file of the same table gives them: times are whole numbers,
//! decimals are texts.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_schema::DataType;

use crate::sources::Reason;
use crate::sources::cell::Cell;

/// Returns whether values are bytes without an encoding.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_)
    )
}

/// Returns whether values are texts or bytes.
pub(super) fn is_text(data_type: &DataType) -> bool {
    use DataType as T;
    is_bytes(data_type) || matches!(data_type, T::Utf8 | T::LargeUtf8 | T::Utf8View)
}

/// Returns whether values are whole numbers, or times, which are stored as such.
pub(super) fn is_ints(data_type: &DataType) -> bool {
    data_type.is_integer()
        || *data_type == DataType::Boolean
        || data_type.is_temporal() && stored_as(data_type) != *data_type
}

pub(super) fn is_number(data_type: &DataType) -> bool {
    is_ints(data_type) || data_type.is_floating()
}

/// Returns whether values can be part of a JSON object.
pub(super) fn is_field(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => {
            is_field(item.data_type())
        }
        T::Struct(fields) => fields.iter().all(|field| is_field(field.data_type())),
        T::Map(entries, _) => is_field(entries.data_type()),
        T::Dictionary(_, values) => is_field(values),
        T::Null | T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
            true
        }
        other => is_text(other) || is_number(other),
    }
}

/// Returns the whole numbers that hold a time; any other type itself.
fn stored_as(data_type: &DataType) -> DataType {
    use DataType as T;
    match data_type {
        T::Date32 | T::Time32(_) => T::Int32,
        T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => T::Int64,
        other => other.clone(),
    }
}

/// Returns the values of a list, the row alone of any other column.
pub(super) fn items(column: &ArrayRef, row: usize) -> ArrayRef {
    match column.data_type() {
        DataType::List(_) => column.as_list::<i32>().value(row),
        DataType::LargeList(_) => column.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        _ => column.slice(row, 1),
    }
}

/// Returns the value of a dictionary in a row, as its values and its place in them.
pub(super) fn looked_up(column: &ArrayRef, row: usize) -> Result<(ArrayRef, usize), Reason> {
    let dictionary = column.as_any_dictionary();
    let keys = dictionary.keys().slice(row, 1);
    let key = match numbers(&keys)? {
        Cell::Ints(keys) => keys.first().and_then(|key| usize::try_from(*key).ok()),
        Cell::Unsigned(keys) => keys.first().and_then(|key| usize::try_from(*key).ok()),
        _ => None,
    };
    let values = dictionary.values();
    let key = key.filter(|key| *key < values.len());
    Ok((values.clone(), key.ok_or(Reason::Null)?))
}

/// Returns whether a value is null. The bitmap of a column says so, but neither that of the type null, nor that of a
/// dictionary whose value is null.
pub(super) fn is_null(column: &ArrayRef, row: usize) -> bool {
    match column.data_type() {
        DataType::Null => true,
        _ if column.is_null(row) => true,
        DataType::Dictionary(..) => {
            let value = looked_up(column, row);
            value.is_ok_and(|(values, place)| is_null(&values, place))
        }
        _ => false,
    }
}

/// Returns a value as a cell; a null is none.
pub(super) fn cell(column: &ArrayRef, row: usize) -> Result<Cell, Reason> {
    if is_null(column, row) {
        return Err(Reason::Null);
    }
    if matches!(column.data_type(), DataType::Dictionary(..)) {
        let (values, place) = looked_up(column, row)?;
        return cell(&values, place);
    }
    if let Some(bytes) = bytes(column, row) {
        return Ok(Cell::Bytes(bytes.to_vec().into()));
    }
    let items = items(column, row);
    if items.null_count() > 0 {
        return Err(Reason::Null);
    }
    numbers(&items)
}

/// Returns the bytes of a text or of bytes.
pub(super) fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).as_bytes(),
        DataType::Utf8View => column.as_string_view().value(row).as_bytes(),
        DataType::Binary => column.as_binary::<i32>().value(row),
        DataType::LargeBinary => column.as_binary::<i64>().value(row),
        DataType::BinaryView => column.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => column.as_fixed_size_binary().value(row),
        _ => return None,
    })
}

/// Returns an array of numbers, without its nulls.
pub(super) fn numbers(array: &dyn Array) -> Result<Cell, Reason> {
    fn widened<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> Vec<i64> {
        let values = array.as_primitive::<T>().values().iter();
        values.map(|n| (*n).into()).collect()
    }
    let stored = stored_as(array.data_type());
    if stored != *array.data_type() {
        let data = array.to_data().into_builder().data_type(stored).build();
        let data = data.map_err(|why| Reason::BrokenArrow {
            detail: why.to_string(),
        })?;
        return numbers(&make_array(data));
    }
    Ok(Cell::Ints(match stored {
        DataType::Boolean => {
            let values = array.as_boolean().values().iter();
            values.map(i64::from).collect()
        }
        DataType::Int8 => widened::<Int8Type>(array),
        DataType::Int16 => widened::<Int16Type>(array),
        DataType::Int32 => widened::<Int32Type>(array),
        DataType::Int64 => widened::<Int64Type>(array),
        DataType::UInt8 => widened::<UInt8Type>(array),
        DataType::UInt16 => widened::<UInt16Type>(array),
        DataType::UInt32 => widened::<UInt32Type>(array),
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values().iter();
            return Ok(Cell::Unsigned(values.copied().collect()));
        }
        _ => return Ok(Cell::Floats(floats(array))),
    }))
}

/// Returns an array of numbers with a fraction.
fn floats(array: &dyn Array) -> Vec<f64> {
    fn widened<T: ArrowPrimitiveType<Native: Into<f64>>>(array: &dyn Array) -> Vec<f64> {
        let values = array.as_primitive::<T>().values().iter();
        values.map(|n| (*n).into()).collect()
    }
    match array.data_type() {
        DataType::Float16 => widened::<Float16Type>(array),
        DataType::Float32 => widened::<Float32Type>(array),
        DataType::Float64 => widened::<Float64Type>(array),
        _ => Vec::new(),
    }
}
