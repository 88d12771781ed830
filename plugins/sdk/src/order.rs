//! Candidates in a plug-in's order, sorted only as far as it is read, because a batch takes few of a thousand candidates.

/// Number of candidates sorted first. After that, each step sorts as many as are sorted already.
const AT_FIRST: usize = 32;

/// Candidates in ascending order of a key; with equal keys, longest ready first. [`crate::scheduler::Ready::sorted`] returns it.
#[derive(Debug, Clone)]
pub struct Order<K> {
    /// Empty if the candidates are in order already.
    keyed: Vec<(K, u32)>,
    len: usize,
    /// Number of sorted candidates at the front.
    sorted: usize,
    next: usize,
}

/// A floating-point number as a sort key, in the order of [`f64::total_cmp`].
#[must_use]
pub fn rank(number: f64) -> i64 {
    let bits = number.to_bits().cast_signed();
    // Of negative numbers, the one farther from zero is less.
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

impl<K: Ord> Order<K> {
    pub(crate) fn new(candidates: std::ops::Range<u32>, key: impl Fn(u32) -> K) -> Order<K> {
        let len = candidates.len();
        // Often they are sorted already: the first to arrive is often the first to become ready.
        if candidates.clone().is_sorted_by_key(&key) {
            return Order { keyed: Vec::new(), len, sorted: len, next: 0 };
        }
        Order { keyed: candidates.map(|i| (key(i), i)).collect(), len, sorted: 0, next: 0 }
    }

    fn sort_on(&mut self) {
        let Some(rest) = self.keyed.get_mut(self.sorted..) else { return };
        let many = rest.len().min(self.sorted.max(AT_FIRST));
        if many < rest.len() {
            rest.select_nth_unstable(many);
        }
        rest[..many].sort_unstable();
        self.sorted += many;
    }
}

impl<K: Ord> Iterator for Order<K> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == self.len {
            return None;
        }
        if self.next == self.sorted {
            self.sort_on();
        }
        let place = self.next;
        self.next += 1;
        // In the original order, a candidate's index is its place.
        Some(self.keyed.get(place).map_or(place as u32, |(_, i)| *i))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len - self.next;
        (left, Some(left))
    }
}

impl<K: Ord> ExactSizeIterator for Order<K> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_matches_a_stable_sort_for_any_number_of_candidates() {
        for len in [0, 1, 31, 32, 33, 64, 65, 1000] {
            let key = |i: u32| i.wrapping_mul(2_654_435_761) % 97;
            let mut sorted: Vec<u32> = (0..len).collect();
            sorted.sort_by_key(|&i| key(i));
            let order = Order::new(0..len, key);
            assert_eq!(order.len(), len as usize);
            assert_eq!(order.collect::<Vec<_>>(), sorted);
        }
    }

    #[test]
    fn order_allocates_nothing_if_the_candidates_are_already_sorted() {
        let mut order = Order::new(0..5, |i| i / 2);
        assert_eq!((order.keyed.capacity(), order.next(), order.len()), (0, Some(0), 4));
        assert_eq!(order.collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(Order::new(0..3, |i| 2 - i).collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn ranks_are_in_the_order_of_numbers() {
        let numbers = [f64::NEG_INFINITY, -2.5, -1.0, -0.0, 0.0, 1e-300, 1.0, 7.25, f64::INFINITY, f64::NAN];
        assert!(numbers.map(rank).is_sorted());
        assert!(rank(-2.5) < rank(-1.0) && rank(0.5) < rank(0.75));
    }
}
