//! Columns on their way into a guest's memory. The types made from `wit/` would do; here a column that nobody asked for costs nothing, where
//! those call the guest's allocator for each: most of what a plan of few candidates takes. Only guests in Rust are spared that: there an empty list
//! owns nothing, and elsewhere (componentize-py) it is given back to the allocator like any other.

use std::mem::MaybeUninit;

use wasmtime::Store;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext};
use wasmtime::component::{Component, ComponentExportIndex, ComponentType, Func, Instance, Lower, TypedFunc};

use super::contract::{self, scheduler};
use super::host::Held;

/// The contract's `columns`.
#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(super) struct Columns<'a> {
    pub(super) len: u32,
    pub(super) sequence: Column<'a, u64>,
    pub(super) step: Column<'a, u64>,
    pub(super) slot: Column<'a, u32>,
    #[component(name = "arrival-us")]
    pub(super) arrival_us: Column<'a, u64>,
    #[component(name = "ready-us")]
    pub(super) ready_us: Column<'a, u64>,
    #[component(name = "deadline-us")]
    pub(super) deadline_us: Column<'a, u64>,
    pub(super) priority: Column<'a, u32>,
    #[component(name = "shape-key")]
    pub(super) shape_key: Column<'a, u64>,
    #[component(name = "start-end")]
    pub(super) start_end: Column<'a, u8>,
    pub(super) rows: Column<'a, u32>,
    #[component(name = "input-bytes")]
    pub(super) input_bytes: Column<'a, u64>,
    #[component(name = "state-bytes")]
    pub(super) state_bytes: Column<'a, u64>,
    pub(super) numbers: Column<'a, f64>,
    pub(super) keys: Column<'a, u64>,
}

pub(super) type Plan<'a> = (scheduler::Round, Columns<'a>);
pub(super) type Planned = (Option<scheduler::Decision>,);
pub(super) type Admit<'a> = (scheduler::Round, Columns<'a>, Column<'a, u32>, Columns<'a>);
pub(super) type Admitted = (Vec<scheduler::Admission>,);

/// A list; and whether nothing is said of it if there is nothing in it ([`may_be_terse`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a, T>(pub(super) &'a [T], pub(super) bool);

/// Components beyond this bring an interpreter along.
const SMALL: usize = 4 << 20;
/// What the generator of Rust's bindings leaves in every component.
const GENERATOR: &[u8] = b"wit-bindgen-rust";

/// Whether a component never gives back an empty list, whose address may then be made up.
pub(super) fn may_be_terse(component: &[u8]) -> bool {
    component.len() < SMALL && component.windows(GENERATOR.len()).any(|bytes| bytes == GENERATOR)
}

// SAFETY: it is laid out as the list that it stands for, and said to be that.
unsafe impl<T: ComponentType> ComponentType for Column<'_, T> {
    type Lower = <[T] as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <[T] as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <[T] as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: what is in it is lowered as the list it stands for. Of an empty one a guest in Rust looks at the length alone; the address is the one that
// its allocator answers with where it is asked for no bytes, aligned as the list would be.
unsafe impl<T: Lower> Lower for Column<'_, T> {
    fn linear_lower_to_flat<U>(
        &self,
        cx: &mut LowerContext<'_, U>,
        ty: InterfaceType,
        to: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        self.0.linear_lower_to_flat(cx, ty, to)
    }

    fn linear_lower_to_memory<U>(
        &self,
        cx: &mut LowerContext<'_, U>,
        ty: InterfaceType,
        at: usize,
    ) -> wasmtime::Result<()> {
        if !self.0.is_empty() || !self.1 {
            return self.0.linear_lower_to_memory(cx, ty, at);
        }
        T::ALIGN32.linear_lower_to_memory(cx, InterfaceType::U32, at)?;
        0u32.linear_lower_to_memory(cx, InterfaceType::U32, at + 4)
    }
}

/// Where a component's functions are that take columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    plan: ComponentExportIndex,
    admit: ComponentExportIndex,
}

impl Places {
    pub(super) fn of(component: &Component) -> Option<Places> {
        let interface = component.get_export_index(None, contract::SCHEDULER)?;
        let [plan, admit] = ["plan", "admit"].map(|name| component.get_export_index(Some(&interface), name));
        Some(Places { plan: plan?, admit: admit? })
    }

    pub(super) fn in_instance(self, store: &mut Store<Held>, instance: &Instance) -> Option<Calls> {
        Some(Calls { plan: instance.get_func(&mut *store, self.plan)?, admit: instance.get_func(store, self.admit)? })
    }
}

/// Those of an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calls {
    plan: Func,
    admit: Func,
}

impl Calls {
    pub(super) fn plan(self, store: &mut Store<Held>, asked: Plan<'_>) -> wasmtime::Result<Planned> {
        // SAFETY: whoever takes a component in holds its `plan` against this very type.
        let plan = unsafe { TypedFunc::<Plan<'_>, Planned>::new_unchecked(self.plan) };
        plan.call(store, asked)
    }

    pub(super) fn admit(self, store: &mut Store<Held>, asked: Admit<'_>) -> wasmtime::Result<Admitted> {
        // SAFETY: as that of `plan`.
        let admit = unsafe { TypedFunc::<Admit<'_>, Admitted>::new_unchecked(self.admit) };
        admit.call(store, asked)
    }
}
