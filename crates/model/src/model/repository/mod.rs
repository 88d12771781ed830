//! Loads models, keeps them up to date, and is the interface of all of `model/`.
//!
//! - `facade`: [`Repository`], the interface for the rest of the server. `options`: how models are loaded; `live_options`: what of it changes
//!   while the server runs. `resources`: the resources that all models share.
//! - `loader`: loads a model; all its changed versions go into service together, once all are ready. `load_attempt`: what one load of a
//!   model writes to the catalog. `preparer`: makes a load of one version. `placer`: finds devices and graphs for its instances.
//!   `missing_file`: explains an absent model file.
//!   `instance_threads`: the threads of all instances.
//! - `caches`: which loads keep their answers. `rates`: which loads wait for resources before a run.
//! - `ensembles`: finds the members of an ensemble, and plans the ensemble for them. `ensemble_loads`: loads members first, and checks
//!   their new loads against the ensembles in service.
//! - `lifecycle`: loads and unloads by request, at the start, and by polling. `control`: the folders of models and the control mode.
//!   `uploads`: loads models whose files a request carried.
//! - `shared_models`: the models, for a store that several servers share.
//! - `plugins`: operators' operations on plug-ins.
//! - `processors`: configures the processors that a model names. `processor_host`: their registry and their threads.
//! - `model_calls`: calls of plug-ins to other models. `call_rights`: which models they may call.
//! - `initializers`: configures the initializer that a model names.
//! - `placed_component`: the component of a plug-in that a model names. `placed_models`: access of the plug-in registries to the models.

mod caches;
mod call_rights;
mod control;
mod ensemble_loads;
mod ensembles;
mod facade;
mod initializers;
mod instance_threads;
mod lifecycle;
mod live_options;
mod load_attempt;
mod loader;
mod missing_file;
mod model_calls;
mod options;
mod placed_component;
mod placed_models;
mod placer;
mod plugins;
mod preparer;
mod processor_host;
mod processors;
mod rates;
mod resources;
mod shared_models;
mod uploads;

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;

pub use control::{RepositoryControl, RepositorySource};
pub use facade::Repository;
pub use options::{RepositoryOptions, epoch_now, first_id_of};

pub use crate::model::catalog::{Availability, ReadyVersion};
