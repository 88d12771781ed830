//! Work off the request path yields its core between two portions. Otherwise a batch would wait for all of it, where the kernel runs both on one core.

use std::thread;

/// To be called between two portions of such work, some hundred microseconds at most: a thread that waits for this core goes first.
pub fn give_way() {
    thread::yield_now();
}
