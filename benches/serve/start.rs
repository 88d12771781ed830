//! Measures how soon a server is ready, and its resources while idle.

use std::time::Duration;

use sequor::bench::{Child, process};

use crate::{Options, models, sequor};

pub(crate) fn figures(options: &Options) {
    let tries = if options.quick { 3 } else { 9 };
    let mut ready = Vec::new();
    let mut resident = 0;
    for _ in 0..tries {
        let child = Child::serve(&sequor(), &models::root("models")).expect("the server");
        ready.push(child.ready_after);
        std::thread::sleep(Duration::from_millis(300));
        resident = resident.max(process::resident(child.pid()).expect("the server"));
    }
    ready.sort();
    let ready = ready[ready.len() / 2].as_secs_f64();
    let mib = resident as f64 / f64::from(1 << 20);
    let verdict = |good| if good { "ok" } else { "MISSED" };
    println!("\nwith the models of models/");
    println!("ready after        {ready:.3} s     at most 0.2 s     {}", verdict(ready <= 0.2));
    println!("memory when idle   {mib:.1} MiB   at most 40 MiB    {}", verdict(mib <= 40.0));
}
