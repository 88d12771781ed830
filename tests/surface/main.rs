//! Tests clients over real sockets, beyond single requests. The server is in the test's process. It uses the mock backend if the numbers do
//! not matter, and ONNX Runtime for Triton's own Python clients.

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
mod http2;
mod keys;
mod limits;
mod memory;
mod order;
mod pages;
mod peers;
mod python;
mod reloads;
mod restricted;
mod rig;
mod settings;
mod sockets;
mod statistics;
mod streams;
mod tfs;
mod unread;
