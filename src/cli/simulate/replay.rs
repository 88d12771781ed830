//! `sequor simulate --replay-round FILE`: asks a plug-in a question again that failed in a server, and shows how the core judges the
//! answer.

use std::path::Path;
use std::sync::Arc;

use super::Failed;
use super::files::file_name;
use crate::cli::plugin_host::cache;
use crate::cli::stdout;
use crate::scheduling::guest::Source as _;
use crate::scheduling::guest::Strike;
use crate::scheduling::round_file::{Answer, Question, Rejected, ReplayOutcome, RoundFile};
use crate::scheduling::{SchedulerComponent, word};
use sequor_wasm::counter::CounterName;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::services::Services;

/// Maximum number of indices shown of a list.
const SHOWN: usize = 16;

/// Asks the plug-in at `policy` the question of `file`. Fails if the answer is still invalid.
pub(super) fn run(file: &Path, policy: &str) -> Result<(), Failed> {
    let in_file = |e: String| Failed::Configuration(format!("{}: {e}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| in_file(e.to_string()))?;
    let round = RoundFile::read(&text).map_err(in_file)?;
    let component = component(Path::new(policy))?;
    stdout::text(format_args!("{}", before(&round, &component)))?;
    let mut guest =
        component.guest(Arc::new(PrintingServices), round.limits()).map_err(|error| Failed::Failed(error.what))?;
    match round.ask(&mut guest) {
        ReplayOutcome::Unconfigured(what) => Err(Failed::Failed(format!("it does not take its configuration: {what}"))),
        ReplayOutcome::Failed(error) => Err(still(&error.into())),
        ReplayOutcome::Answered(answer, Err(strike)) => {
            stdout::line(format_args!("now   {}", sentence(&answer, &round.question)))?;
            Err(still(&strike))
        }
        ReplayOutcome::Answered(answer, Ok(())) => {
            stdout::line(format_args!("now   {}; the core takes it", sentence(&answer, &round.question)))
        }
    }
}

fn still(strike: &Strike) -> Failed {
    Failed::Failed(format!("still at fault: {}: {}", word(strike.fault), strike.what))
}

fn component(path: &Path) -> Result<SchedulerComponent, Failed> {
    let bytes = std::fs::read(path).map_err(|e| Failed::Configuration(format!("{}: {e}", path.display())))?;
    let engine = Engine::new(Mode::Simulation).map_err(|e| Failed::Failed(e.to_string()))?;
    let grants = Grants { clock: true, random: true, sequence_text: true, ..Grants::default() };
    let loaded = SchedulerComponent::new(&Arc::new(engine), &file_name(path), &bytes, grants, cache().as_ref());
    loaded.map_err(|refused| Failed::Configuration(refused.to_string()))
}

/// Describes the question, and the failure in the server.
fn before(round: &RoundFile, component: &SchedulerComponent) -> String {
    let RoundFile { plugin, version, sha256, model, fault, what, answer, .. } = round;
    let shown = round.question.shown().candidates();
    let s = if shown == 1 { "" } else { "s" };
    let asked = match &round.question {
        Question::Plan { .. } => format!("plan of {shown} candidate{s}, at most {} a batch", model.max_batch),
        Question::Admit { .. } => format!("admit of {shown} sequence{s}"),
    };
    let sha = sha256.get(..7).unwrap_or_default();
    let mut text =
        format!("{plugin} {version} ({sha}) on {} {}: {asked}\nthen  {fault}: {what}\n", model.name, model.version);
    if let Some(answer) = answer {
        text += &format!("then  {}\n", sentence(answer, &round.question));
    }
    if component.manifest().hooks.observe {
        text += "note  a fresh instance: it has observed nothing\n";
    }
    text
}

fn sentence(answer: &Answer, question: &Question) -> String {
    let of = question.shown().candidates();
    match answer {
        Answer::Default => "left it to the built-in policy".to_owned(),
        Answer::Wait { reject, .. } => format!("fired nothing{}", refused(reject)),
        Answer::Fire { fire, reject } => {
            format!("fired {} of {of}: {}{}", fire.len(), listed(fire), refused(reject))
        }
        Answer::Admit(answers) => {
            let some: Vec<String> = answers.iter().take(SHOWN).map(|a| format!("{a:?}").to_lowercase()).collect();
            format!("answered {} of {of}: {}", answers.len(), some.join(", "))
        }
    }
}

fn refused(reject: &[Rejected]) -> String {
    if reject.is_empty() {
        return String::new();
    }
    let one = |Rejected { candidate, code, ends }: &Rejected| {
        format!("{candidate} (code {code}, {})", if *ends { "ends" } else { "keeps" })
    };
    let some: Vec<String> = reject.iter().take(SHOWN).map(one).collect();
    let more = if reject.len() > SHOWN { ", …" } else { "" };
    format!(", refused {}: {}{more}", reject.len(), some.join(", "))
}

fn listed(indices: &[u32]) -> String {
    let some: Vec<String> = indices.iter().take(SHOWN).map(u32::to_string).collect();
    some.join(", ") + if indices.len() > SHOWN { ", …" } else { "" }
}

/// Prints the guest's log, which is the reason to replay a question.
#[derive(Debug)]
struct PrintingServices;

impl Services for PrintingServices {
    fn log(&self, level: u32, message: &str) {
        let level = ["error", "warn", "info"].get(usize::try_from(level).unwrap_or(usize::MAX)).unwrap_or(&"debug");
        // The command ends with its next line.
        let _ = stdout::line(format_args!("log   {level}: {message}"));
    }

    fn metric_add(&self, _: &CounterName, _: f64) {}

    fn key_text(&self, _: u64) -> Option<String> {
        None
    }

    fn sequence_text(&self, _: u64) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use sequor_core::{
        Columns, Decision, Hooks, Instance, LoadId, Picks, PolicyAnswer, PolicyFault, PolicyQuestion, Round,
    };

    use super::*;
    use crate::config::model::LoadFacts;
    use crate::scheduling::guest::Manifest;
    use crate::scheduling::round_file::Wrong;
    use crate::scheduling::wat_fixture::SchedulerWat;
    use sequor_wasm::limits::Limits;

    /// A round of three candidates, in which the answer fired index 97.
    fn recorded() -> RoundFile {
        let see = Columns { len: 3, max_batch: 2, ..Columns::default() };
        let asked = PolicyQuestion::Plan(Instance { load: LoadId::FIRST, n: 0 });
        let mut round = Round::again(asked, see, Hooks::default(), [(1, 0), (1, 0), (1, 0)]);
        round.picks = Picks { fire: vec![97, 0], ..Picks::default() };
        let manifest = Manifest {
            name: "fair".to_owned(),
            version: "1.2".to_owned(),
            hooks: Hooks::default(),
            features: Vec::new(),
            codes: Arc::default(),
        };
        let facts = LoadFacts { name: "vad".to_owned(), version: 2, max_batch: 2, ..LoadFacts::default() };
        let wrong = Wrong { fault: PolicyFault::Index, what: "plan answered index 97 of 3 candidates" };
        let answer = PolicyAnswer::Plan(Ok(Decision::Fire));
        RoundFile::new(&round, Some(&answer), wrong, (&manifest, "3f2a91c4d0"), (&facts, "{}", Limits::default()))
    }

    #[test]
    fn a_recorded_round_is_replayed_and_its_answer_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let file = recorded().write(folder.path()).unwrap();
        let put = |guest: &SchedulerWat<'_>| {
            let path = folder.path().join("fair.wasm");
            std::fs::write(&path, guest.component()).unwrap();
            run(&file, path.to_str().unwrap()).map_err(|e| e.to_string())
        };
        assert_eq!(put(&SchedulerWat::default()), Ok(()));
        // The plug-in fires its first candidate twice.
        let twice = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1032) (i32.const 2048))
            (i32.store (i32.const 1036) (i32.const 2)) (i32.const 1024)";
        assert_eq!(
            put(&SchedulerWat { plan: twice, ..SchedulerWat::default() }).unwrap_err(),
            "still at fault: repeat: plan answered 0 twice"
        );
        let fell = put(&SchedulerWat { plan: "unreachable", ..SchedulerWat::default() }).unwrap_err();
        assert_eq!(fell, "still at fault: trap: it gave up (unreachable) (in plan), in plan");
        assert!(run(Path::new("/none.json"), "x.wasm").is_err());
    }

    #[test]
    fn a_replay_first_reports_the_recorded_fault() {
        let component = {
            let engine = Arc::new(Engine::new(Mode::Simulation).unwrap());
            SchedulerComponent::new(&engine, "fair.wasm", &SchedulerWat::default().component(), Grants::default(), None)
                .unwrap()
        };
        assert_eq!(
            before(&recorded(), &component),
            "fair 1.2 (3f2a91c) on vad 2: plan of 3 candidates, at most 2 a batch\n\
             then  index: plan answered index 97 of 3 candidates\n\
             then  fired 2 of 3: 97, 0\n\
             note  a fresh instance: it has observed nothing\n"
        );
    }
}
