//! Yields the core between portions of work off the request path. Otherwise a batch would wait for all of that work if both run on one
//! core.

use std::thread;

/// Lets a thread that waits for this core run first. Call it between portions of at most some hundred microseconds.
pub fn give_way() {
    thread::yield_now();
}
