//! The candidates: one candidate's values by its index, and orders of them.

use crate::columns::Columns;
use crate::model::{Key, Model, Sequence};
use crate::order::Order;
use crate::round::Round;

/// The candidates, longest ready first. A method panics if `plugin.toml` does not name its column.
#[derive(Debug, Clone, Copy)]
pub struct Ready<'a> {
    columns: &'a Columns<'a>,
    model: &'a Model,
}

impl<'a> Ready<'a> {
    #[must_use]
    pub fn new(columns: &'a Columns<'a>, model: &'a Model) -> Ready<'a> {
        Ready { columns, model }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len as usize
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.len == 0
    }

    /// Every candidate, in the order in which they became ready.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + use<> {
        0..self.columns.len
    }

    /// Every candidate, sorted by this key; with equal keys, longest ready first. The order is sorted only as far as it is read. Use
    /// [`crate::scheduler::rank`] for a key that is a floating-point number.
    pub fn sorted<K: Ord>(&self, key: impl Fn(u32) -> K) -> Order<K> {
        Order::new(0..self.columns.len, key)
    }

    /// All columns, for loops without index checks.
    #[must_use]
    pub fn columns(&self) -> &'a Columns<'a> {
        self.columns
    }

    /// The candidates that one batch can take, in this order: of the first one's shape, and at most the round's `max_batch` rows.
    pub fn batch(&self, order: impl IntoIterator<Item = u32>, round: &Round) -> Vec<u32> {
        let (mut left, mut shape) = (round.max_batch, None);
        let mut fire = Vec::with_capacity((round.max_batch as usize).min(self.len()));
        for i in order {
            let rows = self.columns.rows.get(i as usize).copied().unwrap_or(1);
            let of = self.columns.shape_key.get(i as usize).copied().unwrap_or(0);
            // The server refuses a request that is larger than a batch. Here it may be tried alone.
            let fits = rows <= left || left == round.max_batch;
            if fits && *shape.get_or_insert(of) == of {
                left = left.saturating_sub(rows);
                fire.push(i);
            }
            if left == 0 {
                break;
            }
        }
        fire
    }

    /// The server's handle of its sequence; 0 for a request without one.
    #[track_caller]
    #[must_use]
    pub fn sequence(&self, i: u32) -> Sequence {
        self.at("sequence", &self.columns.sequence, i)
    }

    /// The waiting step of its sequence, counted from 1.
    #[track_caller]
    #[must_use]
    pub fn step(&self, i: u32) -> u64 {
        self.at("step", &self.columns.step, i)
    }

    /// Its slot, if it has one.
    #[track_caller]
    #[must_use]
    pub fn slot(&self, i: u32) -> Option<u32> {
        Some(self.at("slot", &self.columns.slot, i)).filter(|slot| *slot != u32::MAX)
    }

    /// The time at which it arrived.
    #[track_caller]
    #[must_use]
    pub fn arrival_us(&self, i: u32) -> u64 {
        self.at("arrival-us", &self.columns.arrival_us, i)
    }

    /// The time at which it became ready. For a victim, the time since which it is idle.
    #[track_caller]
    #[must_use]
    pub fn ready_us(&self, i: u32) -> u64 {
        self.at("ready-us", &self.columns.ready_us, i)
    }

    /// Its deadline; `u64::MAX` if it has none.
    #[track_caller]
    #[must_use]
    pub fn deadline_us(&self, i: u32) -> u64 {
        self.at("deadline-us", &self.columns.deadline_us, i)
    }

    /// Priority of the request; 0 is the model's default.
    #[track_caller]
    #[must_use]
    pub fn priority(&self, i: u32) -> u32 {
        self.at("priority", &self.columns.priority, i)
    }

    /// Class of its shapes. All requests of a batch must have the same value.
    #[track_caller]
    #[must_use]
    pub fn shape_key(&self, i: u32) -> u64 {
        self.at("shape-key", &self.columns.shape_key, i)
    }

    /// Whether it starts its sequence.
    #[track_caller]
    #[must_use]
    pub fn starts(&self, i: u32) -> bool {
        self.at("start-end", &self.columns.start_end, i) & 1 != 0
    }

    /// Whether it ends its sequence.
    #[track_caller]
    #[must_use]
    pub fn ends(&self, i: u32) -> bool {
        self.at("start-end", &self.columns.start_end, i) & 2 != 0
    }

    /// Number of rows it takes of a batch.
    #[track_caller]
    #[must_use]
    pub fn rows(&self, i: u32) -> u32 {
        self.at("rows", &self.columns.rows, i)
    }

    /// Size of its inputs in bytes.
    #[track_caller]
    #[must_use]
    pub fn input_bytes(&self, i: u32) -> u64 {
        self.at("input-bytes", &self.columns.input_bytes, i)
    }

    /// Size of its sequence's state in bytes.
    #[track_caller]
    #[must_use]
    pub fn state_bytes(&self, i: u32) -> u64 {
        self.at("state-bytes", &self.columns.state_bytes, i)
    }

    /// A numeric feature; 0 if the model has none of this name.
    #[track_caller]
    #[must_use]
    pub fn number(&self, feature: &str, i: u32) -> f64 {
        self.feature("numbers", &self.columns.numbers, &self.model.numbers, feature, i)
    }

    /// A key feature; 0 if the model has none of this name.
    #[track_caller]
    #[must_use]
    pub fn key(&self, feature: &str, i: u32) -> Key {
        self.feature("keys", &self.columns.keys, &self.model.keys, feature, i)
    }

    /// A key feature of all candidates: after `let tenant = ready.keys("tenant");`, `tenant(i)` equals `ready.key("tenant", i)`, and the name
    /// is looked up once.
    pub fn keys(&self, feature: &str) -> impl Fn(u32) -> Key + use<'a> {
        let (ready, at) = (*self, self.model.keys.iter().position(|name| name == feature));
        let wide = self.model.keys.len() as u32;
        move |i| at.map_or(0, |at| ready.at("keys", &ready.columns.keys, i * wide + at as u32))
    }

    #[track_caller]
    fn feature<T: Copy + Default>(&self, name: &str, column: &[T], names: &[String], feature: &str, i: u32) -> T {
        match names.iter().position(|n| n == feature) {
            Some(at) => self.at(name, column, i * names.len() as u32 + at as u32),
            None => T::default(),
        }
    }

    #[track_caller]
    fn at<T: Copy>(&self, name: &str, column: &[T], i: u32) -> T {
        match column.get(i as usize) {
            Some(value) => *value,
            None => self.absent(name, column.is_empty(), i),
        }
    }

    /// Out of the way of loops that look at every candidate.
    #[cold]
    #[track_caller]
    fn absent(&self, name: &str, unasked: bool, i: u32) -> ! {
        if unasked && !self.is_empty() {
            panic!("the server was not asked for this column; add \"{name}\" to `columns` of plugin.toml")
        }
        panic!("index {i} of {} candidates", self.columns.len)
    }
}
