//! What is done off the way of requests gives way to what is on it: a thread that has a core to itself until it is through would have a batch wait
//! for the whole of it, where the system leaves the two on one core. Nothing but that lives here.

use std::thread;

/// To be called between two portions of such work, some hundred microseconds at most: whoever waits for this core goes first.
pub(crate) fn give_way() {
    thread::yield_now();
}
