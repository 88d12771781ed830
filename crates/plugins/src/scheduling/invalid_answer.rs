//! Explains a wrong answer to its author, in one sentence.

use std::collections::BTreeSet;

use sequor_core::{PolicyAnswer, PolicyFault, PolicyQuestion, Round};

/// The sentence for an answer with this fault: `plan answered index 97 of 64 candidates, and 12 twice`.
pub fn sentence(round: &Round, answer: &PolicyAnswer, fault: PolicyFault) -> String {
    let len = round.see.len;
    if let (PolicyAnswer::Admit(Ok(answers)), PolicyQuestion::Admit { room, victims, .. }) = (answer, &round.asked) {
        return match fault {
            PolicyFault::TooMany => format!("admit answered {} times for {len} sequences", answers.len()),
            _ => format!("admit named an instance or victim beyond the {} and {} shown", room.len(), victims.len),
        };
    }
    let picks = &round.picks;
    let beyond: Vec<String> = picks.indices().filter(|i| *i >= len).map(|i| format!("index {i}")).take(3).collect();
    let mut seen = BTreeSet::new();
    let twice: Vec<String> =
        picks.indices().filter(|i| *i < len && !seen.insert(*i)).map(|i| format!("{i} twice")).take(3).collect();
    let all: Vec<String> = beyond.into_iter().map(|i| format!("{i} of {len} candidates")).chain(twice).collect();
    match fault {
        PolicyFault::Shapes => "plan fired candidates whose shape-key differs as one batch".to_owned(),
        PolicyFault::TooMany => format!("plan fired more rows than max-batch = {}", round.see.max_batch),
        _ => format!("plan answered {}", all.join(", and ")),
    }
}

/// How many picks of an answer are kept for this many candidates. A longer list has a repeated or an invalid index by then.
pub(super) fn worth_keeping(shown: u32) -> usize {
    usize::try_from(shown).unwrap_or(usize::MAX).saturating_add(1)
}

/// The server's word for a fault.
pub fn word(fault: PolicyFault) -> &'static str {
    match fault {
        PolicyFault::Trap => "trap",
        PolicyFault::Time => "time",
        PolicyFault::Memory => "memory",
        PolicyFault::Busy => "busy",
        PolicyFault::Index => "index",
        PolicyFault::Repeat => "repeat",
        PolicyFault::TooMany => "too_many",
        PolicyFault::Shapes => "shapes",
    }
}
