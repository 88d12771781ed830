//! Configuration.
pub mod model;
pub mod proto {
    #[derive(Debug)]
    pub struct ModelConfig;
}
