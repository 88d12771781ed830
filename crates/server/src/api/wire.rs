//! Finds the fields of a protobuf message without decoding them. Nothing is allocated.

/// One field of a message.
#[derive(Debug)]
pub(crate) struct Field<'m> {
    pub(crate) number: u64,
    pub(crate) value: FieldValue<'m>,
}

/// The value of a field.
#[derive(Debug)]
pub(crate) enum FieldValue<'m> {
    Number(u64),
    /// A number of 4 or 8 bytes.
    Fixed,
    Bytes(&'m [u8]),
    /// The start or the end of a group. No message of ours has groups.
    Group,
}

impl FieldValue<'_> {
    /// The number of values in a repeated numeric field, packed or not.
    pub(crate) fn numbers(&self) -> u64 {
        match self {
            // The last byte of each value has its highest bit clear.
            FieldValue::Bytes(packed) => packed.iter().filter(|byte| **byte < 0x80).count() as u64,
            FieldValue::Number(_) | FieldValue::Fixed => 1,
            FieldValue::Group => 0,
        }
    }
}

/// The fields of a message, up to the first malformed one.
#[derive(Debug)]
pub(crate) struct MessageFields<'m>(pub(crate) &'m [u8]);

impl<'m> Iterator for MessageFields<'m> {
    type Item = Field<'m>;

    /// At a malformed field, keeps the position.
    fn next(&mut self) -> Option<Field<'m>> {
        let begin = self.0;
        let field = self.field();
        if field.is_none() {
            self.0 = begin;
        }
        field
    }
}

impl<'m> MessageFields<'m> {
    fn field(&mut self) -> Option<Field<'m>> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                FieldValue::Bytes(bytes)
            }
            3 | 4 => FieldValue::Group,
            5 => self.skip(4)?,
            _ => return None,
        };
        // Decoding uses the lower 32 bits of a tag.
        Some(Field { number: (tag & u64::from(u32::MAX)) >> 3, value })
    }

    /// Most varints of a request have one byte: tags, lengths and small numbers.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        match self.0.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.0 = rest;
                Some(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, bytes: usize) -> Option<FieldValue<'m>> {
        self.0 = self.0.get(bytes..)?;
        Some(FieldValue::Fixed)
    }
}
