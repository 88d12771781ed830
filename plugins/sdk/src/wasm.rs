//! The exports of a component: the contract's functions by the canonical ABI, over [`Instance`]. They are written by hand, not generated.
//! Arguments are read where the server wrote them, and an answer is kept until the next call, so nothing is copied or freed. A panic's
//! message goes to the server's log before the trap.

use crate::Instance;
use crate::columns::{Columns, List, Maybe};
use crate::model::{Key, Model, Sequence};
use crate::scheduler::{Admission, Decision, Events, Rejection, Round, Scheduler};

#[path = "arguments.rs"]
pub mod arguments;

/// Access to the component's data, which [`crate::export!`] defines.
pub trait Exported {
    type Plugin: Scheduler;

    fn with<R>(call: impl FnOnce(&mut Kept<Self::Plugin>) -> R) -> R;
}

/// The plug-in and its last answer, which the server reads after the call.
#[derive(Debug)]
pub struct Kept<P> {
    instance: Instance<P>,
    decision: Option<Decision>,
    admissions: Vec<Admission>,
    saved: Vec<u8>,
    refused: String,
    planned: Maybe<Planned>,
    listed: Given,
    result: Maybe<Given>,
}

/// A list for the server, of any type.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Given {
    first: *const u8,
    len: usize,
}

/// The contract's `decision`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Planned {
    fire: Given,
    reject: Given,
    wake_us: Maybe<u64>,
}

/// The contract's `events`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct News<'a> {
    kind: List<'a, u32>,
    sequence: List<'a, Sequence>,
    amount: List<'a, u64>,
    keys: List<'a, Key>,
}

/// The arguments of `plan`.
#[repr(C)]
pub struct ToPlan<'a> {
    round: Round,
    ready: Columns<'a>,
    news: Maybe<News<'a>>,
}

/// The arguments of `admit`.
#[repr(C)]
pub struct ToAdmit<'a> {
    round: Round,
    waiting: Columns<'a>,
    room: List<'a, u32>,
    victims: Columns<'a>,
    news: Maybe<News<'a>>,
}

/// A text or a list of the arguments, as address and length.
pub type Part = (*const u8, usize);

// Sizes of the contract's types, as in the generated code.
const _: () = {
    assert!(size_of::<ToPlan<'_>>() == 40 + (43 + 9) * 4 && size_of::<ToAdmit<'_>>() == 40 + (43 + 2 + 43 + 9 + 1) * 4);
    assert!(size_of::<Maybe<Planned>>() == 40 && size_of::<Rejection>() == 12 && size_of::<Admission>() == 8);
};

impl<'a> Maybe<News<'a>> {
    fn events(&self) -> Events<'a> {
        if !self.there {
            return Events::default();
        }
        let News { kind, sequence, amount, keys } = &self.value;
        let (kind, sequence) = (kind.as_slice(), sequence.as_slice());
        Events { kind, sequence, amount: amount.as_slice(), keys: keys.as_slice() }
    }
}

impl Given {
    const NOTHING: Given = Given { first: std::ptr::null(), len: 0 };

    fn of<T>(list: &[T]) -> Given {
        Given { first: list.as_ptr().cast(), len: list.len() }
    }
}

impl<P: Scheduler> Default for Kept<P> {
    fn default() -> Self {
        let nothing =
            Planned { fire: Given::NOTHING, reject: Given::NOTHING, wake_us: Maybe { there: false, value: 0 } };
        Kept {
            instance: Instance::default(),
            decision: None,
            admissions: Vec::new(),
            saved: Vec::new(),
            refused: String::new(),
            planned: Maybe { there: false, value: nothing },
            listed: Given::NOTHING,
            result: Maybe { there: false, value: Given::NOTHING },
        }
    }
}

impl<P: Scheduler> Kept<P> {
    fn plan(&mut self, arguments: &ToPlan<'_>) -> *const u8 {
        self.decision = self.instance.plan(&arguments.round, &arguments.ready, arguments.news.events());
        self.planned.there = self.decision.is_some();
        if let Some(Decision { fire, reject, wake_us }) = &self.decision {
            self.planned.value = Planned {
                fire: Given::of(fire),
                reject: Given::of(reject),
                wake_us: Maybe { there: wake_us.is_some(), value: wake_us.unwrap_or(0) },
            };
        }
        (&raw const self.planned).cast()
    }

    fn admit(&mut self, arguments: &ToAdmit<'_>) -> *const u8 {
        let ToAdmit { round, waiting, room, victims, news } = arguments;
        self.admissions = self.instance.admit(round, waiting, room.as_slice(), victims, news.events());
        // Sequences beyond the list keep waiting.
        while self.admissions.last() == Some(&Admission::Defer) {
            self.admissions.pop();
        }
        self.listed = Given::of(&self.admissions);
        (&raw const self.listed).cast()
    }

    fn save(&mut self) -> *const u8 {
        self.saved = self.instance.save();
        self.listed = Given::of(&self.saved);
        (&raw const self.listed).cast()
    }

    fn result(&mut self, result: Result<(), String>) -> *const u8 {
        self.result.there = result.is_err();
        self.refused = result.err().unwrap_or_default();
        self.result.value = Given::of(self.refused.as_bytes());
        (&raw const self.result).cast()
    }
}

/// # Safety
///
/// It is a text of the arguments of the current call.
unsafe fn text<'a>((first, len): Part) -> &'a str {
    // SAFETY: a text of the canonical ABI is UTF-8.
    unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(first, len)) }
}

/// # Safety
///
/// It is a list of texts of the arguments of the current call.
unsafe fn texts((first, len): Part) -> Vec<String> {
    // SAFETY: the canonical ABI has this layout.
    let list = unsafe { std::slice::from_raw_parts(first.cast::<List<'_, u8>>(), len) };
    // SAFETY: a text of the canonical ABI is UTF-8.
    list.iter().map(|of| unsafe { std::str::from_utf8_unchecked(of.as_slice()) }.to_owned()).collect()
}

/// The numbers of `model`: version, max-batch, instances, slots.
pub type Numbers = (u64, u32, u32, u32);

/// # Safety
///
/// The server calls this, with the arguments of `configure`: the configuration; name and strategy of the model; its numeric and key features.
pub unsafe fn configure<E: Exported>(
    config: Part,
    [name, strategy, numbers, keys]: [Part; 4],
    (version, max_batch, instances, slots): Numbers,
) -> *const u8 {
    // This is the first call, so it runs the constructors that other targets run before `main`.
    wit_bindgen::rt::run_ctors_once();
    // A trap carries no message, so a panic writes its message to the log.
    std::panic::set_hook(Box::new(|panic| crate::host::error(&panic.to_string())));
    // SAFETY: the server passes texts and lists of texts here.
    let (config, model) = unsafe {
        let (name, strategy) = (text(name).to_owned(), text(strategy).to_owned());
        let (numbers, keys) = (texts(numbers), texts(keys));
        (text(config), Model { name, version, strategy, max_batch, instances, slots, numbers, keys })
    };
    E::with(|kept| {
        let result = kept.instance.configure(config, model);
        // SAFETY: the arguments that are still needed were copied.
        unsafe { arguments::release() };
        kept.result(result)
    })
}

/// # Safety
///
/// The server calls this, with the arguments of `plan`.
pub unsafe fn plan<E: Exported>(given: *const ToPlan<'_>) -> *const u8 {
    // SAFETY: the server uses this layout, and nothing writes there until the call ends.
    let said = E::with(|kept| kept.plan(unsafe { &*given }));
    // SAFETY: an answer does not refer to its question.
    unsafe { arguments::release() };
    said
}

/// # Safety
///
/// The server calls this, with the arguments of `admit`.
pub unsafe fn admit<E: Exported>(given: *const ToAdmit<'_>) -> *const u8 {
    // SAFETY: the server uses this layout, and nothing writes there until the call ends.
    let said = E::with(|kept| kept.admit(unsafe { &*given }));
    // SAFETY: an answer does not refer to its question.
    unsafe { arguments::release() };
    said
}

/// # Safety
///
/// The server calls this, with the arguments of `observe`.
pub unsafe fn observe<E: Exported>(kind: Part, sequence: Part, amount: Part, keys: Part) {
    // SAFETY: the server passes lists of these types, and nothing writes there until the call ends.
    let events =
        unsafe { Events { kind: list(kind), sequence: list(sequence), amount: list(amount), keys: list(keys) } };
    E::with(|kept| kept.instance.observe(events));
    // SAFETY: the plug-in gets events by reference and cannot keep them.
    unsafe { arguments::release() };
}

/// # Safety
///
/// It is a list of this type among the arguments of the current call.
unsafe fn list<'a, T>((first, len): Part) -> &'a [T] {
    // SAFETY: the canonical ABI aligns it.
    unsafe { std::slice::from_raw_parts(first.cast(), len) }
}

pub fn save<E: Exported>() -> *const u8 {
    E::with(Kept::save)
}

/// # Safety
///
/// The server calls this, with the argument of `restore`.
pub unsafe fn restore<E: Exported>(saved: Part) -> *const u8 {
    E::with(|kept| {
        // SAFETY: the server passes a list of bytes.
        let result = kept.instance.restore(unsafe { list(saved) });
        // SAFETY: the bytes that are still needed were copied.
        unsafe { arguments::release() };
        kept.result(result)
    })
}

/// The module in which the generated macro, which adds the component's type, looks for the macro that exports the functions.
pub mod shim {
    pub mod exports {
        pub mod sequor {
            pub mod plugin {
                pub mod scheduler {
                    pub use crate::__sequor_export_functions as __export_sequor_plugin_scheduler_0_1_0_cabi;
                }
            }
        }
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __sequor_export_functions {
    ($component:ident with_types_in $($shim:tt)*) => {
        const _: () = {
            #[unsafe(export_name = "cabi_export_realloc")]
            unsafe extern "C" fn room(old: *const u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
                unsafe { $crate::wasm::arguments::give(old, old_len, align, len) }
            }

            #[unsafe(export_name = "sequor:plugin/scheduler@0.1.0#configure")]
            unsafe extern "C" fn configure(
                config: *const u8,
                config_len: usize,
                name: *const u8,
                name_len: usize,
                version: u64,
                strategy: *const u8,
                strategy_len: usize,
                max_batch: u32,
                instances: u32,
                slots: u32,
                numbers: *const u8,
                numbers_len: usize,
                keys: *const u8,
                keys_len: usize,
            ) -> *const u8 {
                let lists = [(name, name_len), (strategy, strategy_len), (numbers, numbers_len), (keys, keys_len)];
                let numbers = (version, max_batch, instances, slots);
                unsafe { $crate::wasm::configure::<$component>((config, config_len), lists, numbers) }
            }

            #[unsafe(export_name = "sequor:plugin/scheduler@0.1.0#plan")]
            unsafe extern "C" fn plan(given: *const $crate::wasm::ToPlan<'_>) -> *const u8 {
                unsafe { $crate::wasm::plan::<$component>(given) }
            }

            #[unsafe(export_name = "sequor:plugin/scheduler@0.1.0#admit")]
            unsafe extern "C" fn admit(given: *const $crate::wasm::ToAdmit<'_>) -> *const u8 {
                unsafe { $crate::wasm::admit::<$component>(given) }
            }

            #[unsafe(export_name = "sequor:plugin/scheduler@0.1.0#observe")]
            unsafe extern "C" fn observe(
                kind: *const u8,
                kinds: usize,
                sequence: *const u8,
                sequences: usize,
                amount: *const u8,
                amounts: usize,
                key: *const u8,
                keys: usize,
            ) {
                let (kind, sequence) = ((kind, kinds), (sequence, sequences));
                unsafe { $crate::wasm::observe::<$component>(kind, sequence, (amount, amounts), (key, keys)) }
            }

            #[unsafe(export_name = "sequor:plugin/scheduler@0.1.0#save")]
            extern "C" fn save() -> *const u8 {
                $crate::wasm::save::<$component>()
            }

            #[unsafe(export_name = "sequor:plugin/scheduler@0.1.0#restore")]
            unsafe extern "C" fn restore(saved: *const u8, len: usize) -> *const u8 {
                unsafe { $crate::wasm::restore::<$component>((saved, len)) }
            }
        };
    };
}
