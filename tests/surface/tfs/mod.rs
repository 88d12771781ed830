//! Tests TensorFlow Serving's protocol as OVMS's clients use it: sequences, their error table, metadata and status, over gRPC and HTTP.

pub(crate) mod calls;
mod contract;
mod manager;
mod rest;
mod sequences;
mod table;
