//! The steps of a law, and their generators.

use proptest::prelude::*;
use trefoil_store::ExpectVersion;

use super::{IDS, KINDS};

#[derive(Debug, Clone)]
pub(super) enum Step {
    Commit(Vec<Write>),
    Snapshot,
    Ledger(Vec<LedgerStep>),
    Sweep,
    /// Moves the clock, possibly back.
    Tick(i64),
    Reopen,
    /// Copies the content to another engine, which takes over.
    Move(MoveTarget),
    /// Erases resources, some of which may not exist.
    Erase(Vec<(usize, usize)>),
    Compact,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum MoveTarget {
    Memory,
    File,
    Postgres,
}

#[derive(Debug, Clone)]
pub(super) struct Write {
    pub kind: usize,
    pub id: usize,
    pub text: Option<u8>,
    pub member_of: u8,
    pub expect: ExpectVersion,
    pub unless_same: bool,
    pub is_check: bool,
    pub source: Option<i64>,
    pub unless_outdated: bool,
}

#[derive(Debug, Clone)]
pub(super) struct LedgerStep {
    pub key: usize,
    pub value: Option<u8>,
    pub expires_in: Option<i64>,
    /// Condition: absent, any, the current revision (`true`), or another revision.
    pub expect: Option<Option<bool>>,
}

fn write() -> impl Strategy<Value = Write> {
    let expect = prop_oneof![
        6 => Just(ExpectVersion::Any),
        1 => Just(ExpectVersion::Absent),
        2 => (1u64..4).prop_map(ExpectVersion::Version),
    ];
    let text = proptest::option::weighted(0.75, 0..2u8);
    let flags = (any::<bool>(), proptest::bool::weighted(0.1), any::<bool>());
    let source = proptest::option::of(-1..3i64);
    (0..KINDS.len(), 0..IDS.len(), text, 0..4u8, expect, source, flags).prop_map(
        |(kind, id, text, member_of, expect, source, (unless_same, is_check, unless_outdated))| Write {
            kind,
            id,
            text,
            member_of,
            expect,
            unless_same,
            is_check,
            source,
            unless_outdated,
        },
    )
}

fn ledger_step() -> impl Strategy<Value = LedgerStep> {
    let expect =
        prop_oneof![3 => Just(None), 1 => Just(Some(None)), 2 => any::<bool>().prop_map(|is| Some(Some(is)))];
    (0..3usize, proptest::option::weighted(0.8, 0..9u8), proptest::option::of(-2..6i64), expect)
        .prop_map(|(key, value, expires_in, expect)| LedgerStep { key, value, expires_in, expect })
}

fn move_target() -> impl Strategy<Value = MoveTarget> {
    prop_oneof![
        6 => Just(MoveTarget::Memory),
        1 => Just(MoveTarget::File),
        1 => Just(MoveTarget::Postgres),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(write(), 1..4).prop_map(Step::Commit),
        2 => Just(Step::Snapshot),
        4 => proptest::collection::vec(ledger_step(), 1..4).prop_map(Step::Ledger),
        1 => Just(Step::Sweep),
        2 => (-3..6i64).prop_map(Step::Tick),
        1 => Just(Step::Reopen),
        1 => move_target().prop_map(Step::Move),
        1 => proptest::collection::vec((0..KINDS.len(), 0..IDS.len()), 1..3).prop_map(Step::Erase),
        1 => Just(Step::Compact),
    ]
}
