//! Selects the plug-in that decides for a load: the one in the model's file, or the one that an operator attached at run time.
//!
//! - `plugins`: attaches and detaches plug-ins. `schedule_file`: writes the scheduler of a model to the model's file.

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
