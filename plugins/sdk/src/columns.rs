//! The candidates in columns, in the contract's memory layout. A plug-in reads them where the server wrote them, and nothing is unpacked
//! before it is read.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::model::{Key, Sequence};

/// A list in the contract's layout: the address of its first element, and its length.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct List<'a, T> {
    first: *const T,
    len: usize,
    of: PhantomData<&'a [T]>,
}

/// An optional value in the contract's layout. `value` is meaningful only if it is `there`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Maybe<T> {
    pub(crate) there: bool,
    pub(crate) value: T,
}

/// One column, as a slice: entry `i` belongs to candidate `i`. Empty if `plugin.toml` does not name it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Column<'a, T>(Maybe<List<'a, T>>);

/// The candidates in columns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Columns<'a> {
    pub len: u32,
    pub sequence: Column<'a, Sequence>,
    pub step: Column<'a, u64>,
    pub slot: Column<'a, u32>,
    pub arrival_us: Column<'a, u64>,
    pub ready_us: Column<'a, u64>,
    pub deadline_us: Column<'a, u64>,
    pub priority: Column<'a, u32>,
    pub shape_key: Column<'a, u64>,
    pub start_end: Column<'a, u8>,
    pub rows: Column<'a, u32>,
    pub input_bytes: Column<'a, u64>,
    pub state_bytes: Column<'a, u64>,
    /// Row by row, one for each numeric feature of the model.
    pub numbers: Column<'a, f64>,
    /// Row by row, one for each key feature of the model.
    pub keys: Column<'a, Key>,
}

impl<'a, T> List<'a, T> {
    pub(crate) fn of(list: &'a [T]) -> List<'a, T> {
        List { first: list.as_ptr(), len: list.len(), of: PhantomData }
    }

    pub(crate) fn as_slice(&self) -> &'a [T] {
        // SAFETY: it was made from a slice with this lifetime, or the server wrote it by the contract's rules among the call's arguments.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<'a, T> Column<'a, T> {
    #[must_use]
    pub fn as_slice(&self) -> &'a [T] {
        if self.0.there { self.0.value.as_slice() } else { &[] }
    }
}

impl<T> Deref for Column<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<'a, T> From<&'a [T]> for Column<'a, T> {
    fn from(column: &'a [T]) -> Column<'a, T> {
        Column(Maybe { there: !column.is_empty(), value: List::of(column) })
    }
}

impl<T> Default for Column<'_, T> {
    fn default() -> Self {
        Column::from(&[][..])
    }
}

impl<T: PartialEq> PartialEq for Column<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: fmt::Debug> fmt::Debug for Column<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_a_slice_and_one_that_is_not_there_is_empty() {
        let steps = [4, 5];
        let columns = Columns { len: 2, step: steps[..].into(), ..Columns::default() };
        assert_eq!((&columns.step[..], columns.step.first(), columns.rows.len()), (&steps[..], Some(&4), 0));
        let absent = Maybe { there: false, value: List { first: std::ptr::dangling(), len: 7, of: PhantomData } };
        assert_eq!(Column::<u64>(absent), Column::default(), "what lies behind it is nothing");
    }
}
