//! What clients meet beyond single requests, over real sockets: a server within the test's own process, over the stand-in backend where the
//! numbers do not matter, and over ONNX Runtime where Triton's own Python clients are let loose on it.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod admin;
mod answers;
mod connections;
mod control;
mod counted;
mod dispatcher;
mod forms;
mod gate;
mod headers;
mod house;
mod limits;
mod memory;
mod order;
mod pages;
mod peers;
mod python;
mod reloads;
mod settings;
mod sockets;
mod statistics;
mod streams;
mod tfs;
