//! Polls the model repository, so that the server follows its changes.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::model::Repository;

/// Runs until the process ends. If a poll takes longer than the interval, the next one follows after another full interval.
pub async fn run(repository: Repository, every: Duration) {
    let mut looks = interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate, but everything was loaded just now.
    looks.tick().await;
    loop {
        looks.tick().await;
        let repository = repository.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || repository.poll()).await {
            tracing::error!(%error, "the model repository was not looked at");
        }
    }
}
