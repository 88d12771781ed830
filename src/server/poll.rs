//! Looks at the model repository again and again, so that what lies there is what is served.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::model::Repository;

/// Until the process ends. A look that takes longer than the pause between two is followed by the next one after another pause.
pub async fn run(repository: Repository, every: Duration) {
    let mut looks = interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one comes at once, and everything was loaded just now.
    looks.tick().await;
    loop {
        looks.tick().await;
        let repository = repository.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || repository.poll()).await {
            tracing::error!(%error, "the model repository was not looked at");
        }
    }
}
