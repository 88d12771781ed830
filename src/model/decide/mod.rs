//! Which plug-in decides for which load: what the model's file says, or what an operator says at run time.
//!
//! - `plugins`: attaches and detaches. `plugin_files`: the files of models that name a plug-in. `schedule_file`: reads and writes them.

mod plugin_files;
mod plugins;
mod schedule_file;

pub(in crate::model) use plugins::Deciders;

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
