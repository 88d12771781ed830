//! The models by name, as clients and operators see them.
//!
//! - `names`: the catalog. `entry`: the record of one model. `model_handle`: a model as a request addresses it.
//! - `directories`: the folders of models. `fingerprint`: whether a model's files have changed. `digest`: the contents of a version's
//!   files. `scheduler_choice`: the source of the choice of a plug-in. `uploaded`: files that a load request carried. `temporary_folder`:
//!   the folders of such files.
//! - `index`, `overview`: lists of all models.
//!
//! Nothing here loads a model or starts a thread.

mod digest;
mod directories;
mod entry;
mod fingerprint;
mod index;
mod model_handle;
mod names;
mod overview;
mod scheduler_choice;
mod temporary_folder;
mod uploaded;

pub use entry::{Availability, ModelStatus, ReadyVersion};
pub use index::IndexRow;
pub use model_handle::ModelHandle;
pub use overview::{Counted, VersionOverview};
pub use temporary_folder::{TemporaryFolder, remove_abandoned_folders};

pub(in crate::model) use digest::model_digest;
pub(in crate::model) use directories::{directories_of, model_directories};
pub(in crate::model) use entry::{CatalogEntry, ModelSource};
pub(in crate::model) use fingerprint::Fingerprint;
pub(in crate::model) use index::index;
pub(in crate::model) use names::Catalog;
pub(in crate::model) use overview::overview;
pub(in crate::model) use scheduler_choice::SchedulerChoice;
pub(in crate::model) use uploaded::{UploadedBytes, UploadedModel};
