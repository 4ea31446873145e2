//! The fields of a protobuf message, in the order of their bytes.

/// A field's value by its wire type.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Number(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the number of an integer, enum or bool field; `None` for a field of another wire type.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the content of a string, bytes or message field; `None` for a field of another wire type.
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the number of a float field; `None` for a field of another wire type.
    pub(super) fn float(self) -> Option<f32> {
        match self {
            Self::Fixed32(bytes) => Some(f32::from_le_bytes(bytes)),
            _ => None,
        }
    }
}

/// Iterates over the fields of a message as pairs of number and value. The error says at which byte of the message
/// it is damaged; nothing follows it.
pub(super) struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(count).ok()?)?;
        let taken = self.message.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.message.get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed64)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        if start >= self.message.len() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.at = self.message.len();
        }
        Some(field.ok_or_else(|| {
            format!(
                "the field at byte {start} of {} is cut or damaged",
                self.message.len()
            )
        }))
    }
}
