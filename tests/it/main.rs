//! Tests the program from outside: every test starts the real `sequor`, on ports that the system chooses, and uses it like its users. Unit
//! tests are next to the code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod admin;
mod authors;
mod bad_input;
mod cache;
#[path = "../../src/processing/calling_wat.rs"]
mod calling_wat;
mod calls;
#[path = "../surface/admin/certificates.rs"]
mod certificates;
mod check;
mod cli;
mod client_states;
mod clients;
mod collector;
mod config;
mod config_reload;
mod connections;
mod demo;
mod docs;
mod ensembles;
mod examples;
mod failures;
mod features;
mod flags;
mod generate;
mod gpu;
mod held;
mod hostile;
mod initializer_guests;
mod initializer_orders;
#[path = "../../src/initializing/wat.rs"]
mod initializer_wat;
mod initializers;
mod initializers_authors;
mod json;
mod keys;
mod languages;
mod load;
mod model_plugins;
mod operator;
mod oracle;
mod ovms;
mod packages;
mod pages;
mod pcm;
mod perf;
mod plugins;
mod processor_guests;
mod processors;
mod processors_authors;
mod proxies;
mod puppet;
mod python;
mod reference;
mod rejected;
mod reloads;
mod restarts;
mod restricted;
mod sequences;
mod serve;
mod server;
mod several_servers;
mod speech;
mod states;
mod steady;
mod steps;
mod streaming_asr;
mod sums;
mod surface;
mod swap;
mod tls;
mod top;
mod traces;
mod transducer;
mod types;
mod value;
#[path = "../../src/processing/wat_guest.rs"]
mod wat_guest;
mod why;
