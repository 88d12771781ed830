//! Which plug-in decides for which load: what the model's file says, or what an operator says at run time.
//!
//! - `plugins`: attaches and detaches. `schedule_file`: writes into a model's file which plug-in decides.
//! - `plugin_files`: the files of models that name a plug-in. `pins`: the hashes in them.

mod pins;
mod plugin_files;
mod plugins;
mod schedule_file;

pub(in crate::model) use pins::PluginTables;
pub(in crate::model) use plugin_files::{NamingModel, pin_models, restore_files};
pub(in crate::model) use plugins::Deciders;

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
