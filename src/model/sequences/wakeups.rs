//! The answers of a batch leave together: whoever waits for one of them is woken once the last is sent, and all by one task of theirs. Woken
//! one by one from an instance's thread, each would cost that thread a call of the system, and on a busy core the core as well.

use std::cell::RefCell;
use std::task::Waker;

use tokio::runtime::Handle;

use crate::model::runtime::sync;

/// Whom the answers wake that this thread is sending.
#[derive(Debug, Default)]
struct Collected {
    open: bool,
    wakers: Vec<Waker>,
    runtime: Option<Handle>,
}

sync::thread_local! {
    static COLLECTED: RefCell<Collected> = RefCell::default();
}

/// As long as it lives, this thread wakes nobody by [`wake`].
#[derive(Debug)]
pub(super) struct WakeBatch(());

impl WakeBatch {
    pub(in crate::model) fn begin() -> WakeBatch {
        COLLECTED.with(|collected| collected.borrow_mut().open = true);
        WakeBatch(())
    }
}

impl Drop for WakeBatch {
    fn drop(&mut self) {
        let Collected { mut wakers, runtime, .. } = COLLECTED.with(RefCell::take);
        let all = match runtime {
            Some(runtime) if wakers.len() > 1 && Handle::try_current().is_err() => runtime,
            _ => return wakers.drain(..).for_each(Waker::wake),
        };
        all.spawn(async move { wakers.drain(..).for_each(Waker::wake) });
    }
}

/// Wakes a task of this runtime: at once, or with the others if this thread is sending answers.
pub fn wake(waker: Waker, runtime: &Handle) {
    let waker = COLLECTED.with(|collected| {
        let mut collected = collected.borrow_mut();
        if !collected.open {
            return Some(waker);
        }
        collected.wakers.push(waker);
        collected.runtime.get_or_insert_with(|| runtime.clone());
        None
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc::sync_channel;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_is_to_be_woken_is_woken_behind_the_last_answer() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (told, wakers) = sync_channel(3);
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (told, mut polled) = (told.clone(), false);
                runtime.spawn(poll_fn(move |cx| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    told.send(cx.waker().clone()).unwrap();
                    Poll::Pending
                }))
            })
            .collect();
        let wakeups = WakeBatch::begin();
        wakers.iter().take(3).for_each(|waker| wake(waker, runtime.handle()));
        assert_eq!(COLLECTED.with(|collected| collected.borrow().wakers.len()), 3);
        assert!(tasks.iter().all(|task| !task.is_finished()));
        drop(wakeups);
        let all = async { tokio::time::timeout(Duration::from_secs(20), futures_util::future::join_all(tasks)).await };
        let ended = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(all);
        assert!(ended.expect("woken").into_iter().all(|task| task.is_ok()));
    }

    #[test]
    fn without_answers_on_their_way_it_is_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        struct Told(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Told {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let told = std::sync::Arc::new(Told(false.into()));
        wake(std::sync::Arc::clone(&told).into(), runtime.handle());
        assert!(told.0.load(std::sync::atomic::Ordering::Relaxed));
    }
}
