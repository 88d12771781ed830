//! Compares two builds of the server, turn by turn: the ratio of their costs a request. The first build is also compared with itself; a
//! ratio within that spread is noise.

use std::path::{Path, PathBuf};
use std::process::Command;

use sequor::bench::Child;

use crate::cost::{Cell, costs};
use crate::{Options, models, sequor};

/// Models and numbers of clients.
const CELLS: [(&str, usize); 8] = [
    ("identity", 8),
    ("identity", 32),
    ("direct", 8),
    ("direct", 32),
    ("oldest", 8),
    ("oldest", 32),
    ("guided", 8),
    ("guided", 32),
];

/// The plug-in of `guided`, in the folder of `SEQUOR_GUESTS`.
const PLUGIN: &str = "fair-share";

/// Prints the ratios of `after` to `before`. The default of `after` is this bench's own build.
pub(crate) fn figures(options: &Options, before: &Path, after: Option<PathBuf>) {
    let after = after.unwrap_or_else(sequor);
    let repository = models::repository();
    let guests = std::env::var_os("SEQUOR_GUESTS").map_or_else(|| models::root(".sequor/guests"), PathBuf::from);
    let is_guided = guests.join(format!("{PLUGIN}.wasm")).is_file();
    if is_guided {
        models::guided(repository.path(), PLUGIN);
    } else {
        println!("no plug-ins in {} (cargo xtask prepare): the model with a plug-in is left out", guests.display());
    }
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("serve").arg("--model-repository").arg(repository.path());
        command.args(["http", "grpc", "metrics", "admin"].map(|listener| format!("--{listener}-port=0")));
        command.args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--log-level=warn"]);
        if is_guided {
            command.env("SEQUOR_PLUGINS_DIR", &guests);
        }
        Child::start(command).expect("a server")
    };
    let servers = [start(before), start(before), start(&after)];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    println!("\nCPU time of the server, us a request; before: {}; after: {}", before.display(), after.display());
    println!("model     clients   before   before    after   before/before   after/before");
    let mut ratios = [Vec::new(), Vec::new()];
    let wanted = |model: &str| options.wants(model) && (model != "guided" || is_guided);
    for (model, clients) in CELLS.into_iter().filter(|(model, _)| wanted(model)) {
        let cell = Cell { model, streaming: false, clients, sequences: model != "identity" };
        let turns = runtime.block_on(costs(options, &cell, &servers.each_ref()));
        let [first, again, now] = [0, 1, 2].map(|n| geometric(turns.iter().map(|turn| turn[n])));
        let of = [again / first, now / ((first + again) / 2.0)];
        println!("{model:<10}{clients:>7}{first:>9.1}{again:>9.1}{now:>9.1}{:>16.3}{:>15.3}", of[0], of[1]);
        ratios.iter_mut().zip(of).for_each(|(all, ratio)| all.push(ratio));
    }
    let [same, change] = ratios.map(|of| geometric(of.into_iter()));
    println!("{:<44}{same:>16.3}{change:>15.3}", "geometric mean of all cells");
}

fn geometric(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value.ln(), count + 1));
    (sum / f64::from(count.max(1))).exp()
}
