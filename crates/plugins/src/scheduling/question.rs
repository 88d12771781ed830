//! Writes a question into a guest's memory. The generated bindings write a record field by field and look up the guest's memory for each of
//! its 22 fields. That took longer than most guests need for an answer. Here a record is assembled first and written whole. Everything else
//! is as in the generated bindings: `question_tests` compares the bytes.
//!
//! Only this file uses wasmtime's internals (`__internal`), so another version of wasmtime may need changes here. To do without them, call
//! `call_plan` and `call_admit` of the generated bindings.

use std::mem::MaybeUninit;

use sequor_core::Columns;
use sequor_wasm::host::HostState;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext};
use wasmtime::component::{ComponentExportIndex, ComponentType, Func, Instance, Lower, TypedFunc};
use wasmtime::{Error, Result, Store};

use super::columns::{COLUMNS, Values};
use super::contract::{SCHEDULER, scheduler};
use super::guest::Events;

/// The functions of a component that take questions.
#[derive(Debug, Clone, Copy)]
pub struct Exports {
    plan: ComponentExportIndex,
    admit: ComponentExportIndex,
}

/// The functions of an instance that take questions.
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    plan: Func,
    admit: Func,
}

type PlanArguments<'a> = (RoundArgument<'a>, ColumnsArgument<'a>, Option<scheduler::Events<'a>>);
type AdmitArguments<'a> =
    (RoundArgument<'a>, ColumnsArgument<'a>, &'a [u32], ColumnsArgument<'a>, Option<scheduler::Events<'a>>);
type PlanResult = (Option<scheduler::Decision>,);
type AdmitResult = (Vec<scheduler::Admission>,);

impl Exports {
    pub(super) fn resolve(component: &wasmtime::component::Component) -> Result<Exports> {
        let scheduler = component.get_export_index(None, SCHEDULER);
        let function = |name| component.get_export_index(scheduler.as_ref(), name).ok_or_else(|| missing(name));
        Ok(Exports { plan: function("plan")?, admit: function("admit")? })
    }
}

impl Functions {
    pub(super) fn resolve(instance: Instance, exports: &Exports, store: &mut Store<HostState>) -> Result<Functions> {
        let mut function = |name, index| instance.get_func(&mut *store, index).ok_or_else(|| missing(name));
        let functions = Functions { plan: function("plan", exports.plan)?, admit: function("admit", exports.admit)? };
        // Checks the types on which the calls below rely.
        functions.plan.typed::<PlanArguments<'static>, PlanResult>(&*store)?;
        functions.admit.typed::<AdmitArguments<'static>, AdmitResult>(&*store)?;
        Ok(functions)
    }

    pub(super) fn plan(
        &self,
        store: &mut Store<HostState>,
        instance: u32,
        see: &Columns,
        news: &Events,
    ) -> Result<Option<scheduler::Decision>> {
        // SAFETY: `Functions::resolve` checked the function against these types.
        let plan = unsafe { TypedFunc::<PlanArguments<'_>, PlanResult>::new_unchecked(self.plan) };
        Ok(plan.call(store, (RoundArgument { instance, see }, ColumnsArgument(see), events(news)))?.0)
    }

    pub(super) fn admit(
        &self,
        store: &mut Store<HostState>,
        see: &Columns,
        room: &[u32],
        victims: &Columns,
        news: &Events,
    ) -> Result<Vec<scheduler::Admission>> {
        // SAFETY: `Functions::resolve` checked the function against these types.
        let admit = unsafe { TypedFunc::<AdmitArguments<'_>, AdmitResult>::new_unchecked(self.admit) };
        Ok(admit
            .call(
                store,
                (
                    RoundArgument { instance: 0, see },
                    ColumnsArgument(see),
                    room,
                    ColumnsArgument(victims),
                    events(news),
                ),
            )?
            .0)
    }
}

/// The events of a question; `None` if there are none, so that no list is written.
fn events(news: &Events) -> Option<scheduler::Events<'_>> {
    (!news.is_empty()).then(|| contract_events(news))
}

/// The contract's `events`.
pub(super) fn contract_events(events: &Events) -> scheduler::Events<'_> {
    let Events { kind, sequence, amount, keys } = events;
    scheduler::Events { kind, sequence, amount, keys }
}

/// The contract's `round`.
struct RoundArgument<'a> {
    instance: u32,
    see: &'a Columns,
}

/// The contract's `columns`.
struct ColumnsArgument<'a>(&'a Columns);

// SAFETY: every item is that of the generated type.
unsafe impl ComponentType for RoundArgument<'_> {
    type Lower = <scheduler::Round as ComponentType>::Lower;
    const ABI: CanonicalAbiInfo = <scheduler::Round as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> Result<()> {
        <scheduler::Round as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: every item is that of the generated type.
unsafe impl ComponentType for ColumnsArgument<'_> {
    type Lower = <scheduler::Columns<'static> as ComponentType>::Lower;
    const ABI: CanonicalAbiInfo = <scheduler::Columns<'static> as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> Result<()> {
        <scheduler::Columns<'static> as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: it is only written to memory, with bounds checked at every step, in the order and with the gaps of the canonical ABI.
unsafe impl Lower for RoundArgument<'_> {
    fn linear_lower_to_flat<T>(
        &self,
        _: &mut LowerContext<'_, T>,
        _: InterfaceType,
        _: &mut MaybeUninit<Self::Lower>,
    ) -> Result<()> {
        Err(not_flat())
    }

    fn linear_lower_to_memory<T>(&self, cx: &mut LowerContext<'_, T>, _: InterfaceType, offset: usize) -> Result<()> {
        let RoundArgument { instance, see } = self;
        let mut record = Record::<{ <scheduler::Round as ComponentType>::SIZE32 }>::new();
        record.put(in_micros(see.now).to_le_bytes());
        record.put((see.run_time / 1000).to_le_bytes());
        for number in [*instance, see.max_batch, see.free_instances, see.live, see.backlog, see.not_shown] {
            record.put(number.to_le_bytes());
        }
        record.write(cx, offset)
    }
}

// SAFETY: the same as for `RoundArgument`.
unsafe impl Lower for ColumnsArgument<'_> {
    fn linear_lower_to_flat<T>(
        &self,
        _: &mut LowerContext<'_, T>,
        _: InterfaceType,
        _: &mut MaybeUninit<Self::Lower>,
    ) -> Result<()> {
        Err(not_flat())
    }

    fn linear_lower_to_memory<T>(&self, cx: &mut LowerContext<'_, T>, _: InterfaceType, offset: usize) -> Result<()> {
        let see = self.0;
        let mut record = Record::<{ <scheduler::Columns<'static> as ComponentType>::SIZE32 }>::new();
        record.put(see.len.to_le_bytes());
        for column in &COLUMNS {
            match (column.values)(see) {
                Values::Times(times) => record.column(cx, times, |t| in_micros(t).to_le_bytes())?,
                Values::U64(numbers) => record.column(cx, numbers, u64::to_le_bytes)?,
                Values::U32(numbers) => record.column(cx, numbers, u32::to_le_bytes)?,
                Values::U8(numbers) => record.column(cx, numbers, u8::to_le_bytes)?,
                Values::F64(numbers) => record.column(cx, numbers, f64::to_le_bytes)?,
            }
        }
        record.write(cx, offset)
    }
}

/// A record of the contract, assembled from its first byte. A missing column is 0.
struct Record<const SIZE: usize> {
    bytes: [u8; SIZE],
    at: usize,
}

impl<const SIZE: usize> Record<SIZE> {
    fn new() -> Self {
        Record { bytes: [0; SIZE], at: 0 }
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(to) = self.bytes.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *to = bytes;
        }
        self.at += N;
    }

    /// Writes an optional list of numbers. An empty list is written as none and costs nothing.
    fn column<C, N: Copy, const BYTES: usize>(
        &mut self,
        cx: &mut LowerContext<'_, C>,
        numbers: &[N],
        bytes: impl Fn(N) -> [u8; BYTES],
    ) -> Result<()> {
        if numbers.is_empty() {
            self.at += 12;
            return Ok(());
        }
        let first = list(cx, numbers, bytes)?;
        self.put(1u32.to_le_bytes());
        self.put(first.to_le_bytes());
        self.put(u32::try_from(numbers.len()).unwrap_or(u32::MAX).to_le_bytes());
        Ok(())
    }

    fn write<C>(&self, cx: &mut LowerContext<'_, C>, offset: usize) -> Result<()> {
        if self.at != SIZE {
            return Err(Error::msg("a question is not what the contract says"));
        }
        let to = cx.as_slice_mut().get_mut(offset..).and_then(<[u8]>::first_chunk_mut).ok_or_else(beyond)?;
        *to = self.bytes;
        Ok(())
    }
}

/// Writes numbers to memory that the guest allocates, aligned to their size. Returns their address.
fn list<C, N: Copy, const BYTES: usize>(
    cx: &mut LowerContext<'_, C>,
    numbers: &[N],
    bytes: impl Fn(N) -> [u8; BYTES],
) -> Result<u32> {
    let len = numbers.len() * BYTES;
    let first = cx.realloc(0, 0, u32::try_from(BYTES)?, len)?;
    let room = cx.as_slice_mut().get_mut(first..).and_then(|room| room.get_mut(..len)).ok_or_else(beyond)?;
    for (to, number) in room.as_chunks_mut().0.iter_mut().zip(numbers) {
        *to = bytes(*number);
    }
    Ok(u32::try_from(first)?)
}

fn missing(name: &str) -> Error {
    Error::msg(format!("{SCHEDULER} has no function {name}"))
}

fn not_flat() -> Error {
    Error::msg("a question has too many numbers to be handed over one by one")
}

fn beyond() -> Error {
    Error::msg("the guest gave room beyond its memory")
}

/// Converts to microseconds. "Never" stays never.
fn in_micros(nanos: u64) -> u64 {
    if nanos == u64::MAX { u64::MAX } else { nanos / 1000 }
}

pub(super) fn in_nanos(micros: u64) -> u64 {
    micros.saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_never_in_every_unit() {
        assert_eq!([in_micros(u64::MAX), in_micros(1_999), in_nanos(in_micros(u64::MAX))], [u64::MAX, 1, u64::MAX]);
        assert_eq!(in_nanos(7), 7_000);
    }

    #[test]
    fn record_sizes_match_the_contract() {
        let columns = <scheduler::Columns<'static> as ComponentType>::SIZE32;
        assert_eq!((<scheduler::Round as ComponentType>::SIZE32, columns), (2 * 8 + 6 * 4, 4 + 14 * 12));
        let mut record = Record::<8>::new();
        record.put([1; 6]);
        record.put([2; 4]);
        assert_eq!((record.bytes, record.at), ([1, 1, 1, 1, 1, 1, 0, 0], 10), "what does not fit is not written");
    }
}
