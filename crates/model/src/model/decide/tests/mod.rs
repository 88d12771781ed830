//! Plug-ins that decide for whole models over the stand-in backend.

mod admission;
mod files;
mod inline;
mod plugins;
mod swap;
