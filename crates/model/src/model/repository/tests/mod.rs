//! Tests loads and reloads of one name: what they leave behind, and what they do when they meet.

mod attempts;
