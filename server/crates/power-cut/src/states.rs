//! The states in which a power cut may leave a disk.
//!
//! A state is a position in a recording, and a choice for each operation that is not durable there. Positions
//! directly before a mark are omitted, because the same content is checked with more acknowledgements after
//! it. The choices are:
//!
//! 1. everything that is not durable is lost, or everything is kept;
//! 2. exactly one operation is lost, or exactly one is kept;
//! 3. one of the last writes is torn: only some of its sectors were written, or the file has grown by zeros;
//! 4. a random choice for each operation, from a seed.

use std::collections::HashMap;
use std::ops::Range;

use fastrand::Rng;

use crate::disk::{DiskImage, FileContent, Inode, SECTOR};
use crate::model::{DurabilityModel, NameRule};
use crate::recording::{Operation, Recording, apply_fully};

/// Maximum number of operations at a position that are lost or kept alone; later ones come first.
const SINGLE: usize = 24;
/// Number of writes at a position that are torn in all ways.
const TORN: usize = 2;

/// Environment variables: the number of states, and the seed.
pub(crate) const STATES: &str = "TREFOIL_POWER_CUT_STATES";
pub(crate) const SEED: &str = "TREFOIL_POWER_CUT_SEED";
const DEFAULT_SEED: u64 = 19;

/// The states to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exploration {
    /// When names become durable.
    pub rule: NameRule,
    /// Number of states.
    pub states: usize,
    /// Seed of the random choices.
    pub seed: u64,
    /// First and last number of operations before the power cut.
    pub positions: (usize, usize),
}

impl Exploration {
    /// An exploration with this number of states, unless the environment states another number or seed.
    pub fn of(rule: NameRule, states: usize) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let states = number(STATES).and_then(|states| usize::try_from(states).ok()).unwrap_or(states);
        Self { seed: number(SEED).unwrap_or(DEFAULT_SEED), ..Self::of_fault(rule, states) }
    }

    /// An exploration with exactly this number of states, for a recording with a planted fault.
    pub fn of_fault(rule: NameRule, states: usize) -> Self {
        Self { rule, states, seed: DEFAULT_SEED, positions: (1, usize::MAX) }
    }

    /// An exploration of the states in which a planted fault matters: with at least the first number of
    /// operations before the power cut, and at most the last one.
    pub fn within_fault(rule: NameRule, states: usize, positions: (usize, usize)) -> Self {
        Self { positions, ..Self::of_fault(rule, states) }
    }
}

/// The part of a write that reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TornPart {
    /// The first half of its sectors.
    FirstHalf,
    /// The second half of its sectors.
    SecondHalf,
    /// All sectors but the first.
    WithoutFirst,
    /// All sectors but the last.
    WithoutLast,
    /// Every second sector.
    EverySecond,
    /// No sector, but the file has its new length.
    OnlyLength,
    /// Random sectors.
    Random(u64),
}

const TEARS: [TornPart; 6] = [
    TornPart::FirstHalf,
    TornPart::SecondHalf,
    TornPart::WithoutFirst,
    TornPart::WithoutLast,
    TornPart::EverySecond,
    TornPart::OnlyLength,
];

/// The choice for the operations that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossChoice {
    AllLost,
    AllKept,
    /// The operation with this number is lost, the others are kept. With [`NameRule::Ordered`], later names
    /// are lost with a name.
    Without(usize),
    /// The operation with this number is kept, the others are lost. With [`NameRule::Ordered`], earlier names
    /// are kept with a name.
    Only(usize),
    /// The write with this number is torn, the others are kept.
    Torn(usize, TornPart),
    /// A random choice for each operation.
    Random(u64),
}

/// A state in which a power cut may leave the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashState {
    /// Number of operations before the power cut.
    pub position: usize,
    /// The choice for those that were not durable.
    pub choice: LossChoice,
}

/// Up to `exploration.states` states in the order of their positions. If there are fewer systematic states
/// (1 to 3), random ones are added; if there are more, a quarter of the result is random and the rest is a
/// random sample of them.
pub fn plan(recording: &Recording, exploration: Exploration) -> Vec<CrashState> {
    let Exploration { rule, states: wanted, seed, positions: (first, last) } = exploration;
    let mut rng = Rng::with_seed(seed);
    let mut model = DurabilityModel::new(recording, rule);
    let (mut states, mut uncertain) = (Vec::new(), Vec::new());
    for position in first.max(recording.prelude).max(1)..=last.min(recording.operations.len()) {
        if matches!(recording.operations.get(position), Some(Operation::Mark(_))) {
            continue;
        }
        model.advance(position);
        let mut add = |choice| states.push(CrashState { position, choice });
        add(LossChoice::AllKept);
        let pending = model.pending();
        if pending.is_empty() {
            continue;
        }
        uncertain.push(position);
        add(LossChoice::AllLost);
        if pending.len() > 1 {
            for number in pending.iter().rev().take(SINGLE) {
                add(LossChoice::Without(*number));
                add(LossChoice::Only(*number));
            }
        }
        let is_write = |number: &&usize| matches!(recording.operations[**number], Operation::Write { .. });
        for number in pending.iter().rev().filter(is_write).take(TORN) {
            TEARS.into_iter().for_each(|part| add(LossChoice::Torn(*number, part)));
        }
    }
    let systematic = if states.len() > wanted { wanted - wanted / 4 } else { states.len() };
    rng.shuffle(&mut states);
    states.truncate(systematic);
    while states.len() < wanted && !uncertain.is_empty() {
        let position = uncertain[rng.usize(..uncertain.len())];
        states.push(CrashState { position, choice: LossChoice::Random(rng.u64(..)) });
    }
    states.sort_by_key(|state| state.position);
    states
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationLoss {
    Kept,
    Lost,
    Torn(TornPart),
}

/// The content of the disk in a state. The model must be at the position of the state.
pub(crate) fn image(model: &DurabilityModel<'_>, choice: LossChoice) -> DiskImage {
    let mut image = model.durable().clone();
    let losses = losses(model, choice);
    // A sector is written from the page cache, which contains all earlier writes. If one write to a sector is
    // on the disk, then so are the earlier writes to this sector.
    let mut newest: HashMap<(Inode, u64), usize> = HashMap::new();
    for (number, loss) in &losses {
        if let Operation::Write { file, at, data } = &model.recording.operations[*number] {
            for sector in sectors(*at, data).filter(|sector| loss.keeps(*sector, sectors(*at, data))) {
                newest.insert((*file, sector), *number);
            }
        }
    }
    for (number, loss) in losses {
        let operation = &model.recording.operations[number];
        match operation {
            Operation::Write { file, at, data } => image.change_file(*file, |content| {
                let is_kept = |sector| newest.get(&(*file, sector)).is_some_and(|newest| *newest >= number);
                write_sectors(content, *at, data, is_kept);
                if loss.grows() && content.length() < at + data.len() as u64 {
                    content.set_length(at + data.len() as u64);
                }
            }),
            _ if loss == OperationLoss::Kept => apply_fully(&mut image, operation),
            _ => {}
        }
    }
    image
}

/// The numbers of the sectors that a write touches.
fn sectors(index: u64, data: &[u8]) -> Range<u64> {
    index / SECTOR..(index + data.len() as u64).div_ceil(SECTOR)
}

/// Writes some sectors of a write. The others keep their content, and are zero if the file has grown.
fn write_sectors(content: &mut FileContent, index: u64, data: &[u8], is_kept: impl Fn(u64) -> bool) {
    let end = index + data.len() as u64;
    for sector in sectors(index, data).filter(|sector| is_kept(*sector)) {
        let from = (sector * SECTOR).max(index);
        let until = ((sector + 1) * SECTOR).min(end);
        let range = usize::try_from(from - index).unwrap_or(0)..usize::try_from(until - index).unwrap_or(0);
        content.write(from, &data[range]);
    }
}

impl OperationLoss {
    /// `true` if a sector of a write is on the disk.
    fn keeps(self, sector: u64, all: Range<u64>) -> bool {
        let (index, count) = (sector - all.start, all.end - all.start);
        match self {
            Self::Kept => true,
            Self::Lost | Self::Torn(TornPart::OnlyLength) => false,
            Self::Torn(TornPart::FirstHalf) => index < count / 2,
            Self::Torn(TornPart::SecondHalf) => index >= count.div_ceil(2),
            Self::Torn(TornPart::WithoutFirst) => index > 0,
            Self::Torn(TornPart::WithoutLast) => index + 1 < count,
            Self::Torn(TornPart::EverySecond) => index % 2 == 0,
            Self::Torn(TornPart::Random(seed)) => Rng::with_seed(seed ^ sector).bool(),
        }
    }

    /// `true` if the file has the length that it has after the complete write.
    fn grows(self) -> bool {
        match self {
            Self::Torn(TornPart::OnlyLength) => true,
            Self::Torn(TornPart::Random(seed)) => seed % 2 == 0,
            _ => false,
        }
    }
}

/// A description of a state: each operation that is not durable, and what happens to it.
pub(crate) fn describe(model: &DurabilityModel<'_>, choice: LossChoice) -> String {
    let mut text = format!("{choice:?}");
    for (number, loss) in losses(model, choice) {
        let what = match &model.recording.operations[number] {
            Operation::Names { folder, changes } => format!("names in folder {folder}: {changes:?}"),
            Operation::Write { file, at, data } => format!("{} bytes at {at} of file {file}", data.len()),
            Operation::Length { file, length } => format!("length {length} of file {file}"),
            other => format!("{other:?}"),
        };
        text.push_str(&format!("\n  operation {number}, {what}: {loss:?}"));
    }
    text
}

fn losses(model: &DurabilityModel<'_>, choice: LossChoice) -> Vec<(usize, OperationLoss)> {
    let operations = &model.recording.operations;
    let mut rng = Rng::with_seed(if let LossChoice::Random(seed) = choice { seed } else { 0 });
    let often = [0.1, 0.5, 0.9][rng.usize(..3)];
    let loss_of = |yes: bool| if yes { OperationLoss::Kept } else { OperationLoss::Lost };
    let mut states: Vec<_> = model
        .pending()
        .iter()
        .map(|&number| {
            let loss = match choice {
                LossChoice::AllLost => OperationLoss::Lost,
                LossChoice::AllKept => OperationLoss::Kept,
                LossChoice::Without(one) => loss_of(number != one),
                LossChoice::Only(one) => loss_of(number == one),
                LossChoice::Torn(one, part) if one == number => OperationLoss::Torn(part),
                LossChoice::Torn(..) => OperationLoss::Kept,
                LossChoice::Random(_) if rng.f64() < often => OperationLoss::Kept,
                LossChoice::Random(_) => match &operations[number] {
                    Operation::Write { .. } => match rng.u8(..4) {
                        0 => OperationLoss::Lost,
                        1 => OperationLoss::Torn(TornPart::OnlyLength),
                        _ => OperationLoss::Torn(TornPart::Random(rng.u64(..))),
                    },
                    _ => OperationLoss::Lost,
                },
            };
            (number, loss)
        })
        .collect();
    if model.rule == NameRule::Ordered {
        order_names(operations, choice, &mut states);
    }
    states
}

/// Makes the choice for names one that their order permits: all names before one of them are kept, and all
/// others lost.
fn order_names(operations: &[Operation], choice: LossChoice, losses: &mut [(usize, OperationLoss)]) {
    let names = || losses.iter().filter(|(number, _)| operations[*number].is_name());
    let survives = |(_, loss): &&(usize, OperationLoss)| *loss == OperationLoss::Kept;
    let end = match choice {
        LossChoice::Only(_) => names().rfind(survives).map_or(0, |(number, _)| number + 1),
        LossChoice::Random(_) => {
            let count = names().filter(survives).count();
            names().nth(count).map_or(usize::MAX, |(number, _)| *number)
        }
        _ => names().find(|one| !survives(one)).map_or(usize::MAX, |(number, _)| *number),
    };
    for (number, loss) in losses.iter_mut().filter(|(number, _)| operations[*number].is_name()) {
        *loss = if *number < end { OperationLoss::Kept } else { OperationLoss::Lost };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ROOT;

    /// A recording of a file `a` that is created and written three times in one sector, synced, and replaced
    /// by a new file `b`.
    fn recording() -> Recording {
        let name_change =
            |name: &str, inode| Operation::Names { folder: ROOT, changes: vec![(name.to_owned(), inode)] };
        let write = |file, at, data: &[u8]| Operation::Write { file, at, data: data.to_vec() };
        let sync = |inode, covers| Operation::Sync { inode, covers, path: String::new() };
        let operations = vec![
            name_change("a", Some(1)),
            write(1, 0, b"one"),
            write(1, 3, b"two"),
            write(1, 510, b"three"),
            sync(1, 4),
            name_change("b", Some(2)),
            write(2, 0, b"b"),
            sync(2, 7),
            name_change("a", None),
            sync(ROOT, 9),
        ];
        Recording { operations, folders: vec![true, false, false], prelude: 0, trace: String::new() }
    }

    /// The content of the files `a` and `b` in a state.
    fn files(rule: NameRule, position: usize, choice: LossChoice) -> [Option<Vec<u8>>; 2] {
        let recording = recording();
        let mut model = DurabilityModel::new(&recording, rule);
        model.advance(position);
        let dir = tempfile::TempDir::new().expect("a temporary folder can be made");
        image(&model, choice).write_to(dir.path()).expect("the state can be written");
        ["a", "b"].map(|name| std::fs::read(dir.path().join(name)).ok())
    }

    #[test]
    fn names_are_durable_by_their_rule() {
        let (strict, ordered) = (NameRule::Strict, NameRule::Ordered);
        // The fsync of a file does not make its name durable, unless names are ordered.
        assert_eq!(files(strict, 5, LossChoice::AllLost), [None, None]);
        assert_eq!(files(ordered, 5, LossChoice::AllLost)[0].as_ref().map(Vec::len), Some(515));
        assert_eq!(files(strict, 8, LossChoice::Without(0))[1].as_deref(), Some(&b"b"[..]));
        assert_eq!(files(strict, 10, LossChoice::AllLost), [None, Some(b"b".to_vec())]);
        // With ordered names, the last name is kept only with all earlier ones.
        assert_eq!(files(ordered, 7, LossChoice::Only(5))[1].as_deref(), Some(&b""[..]));
        assert!(files(ordered, 9, LossChoice::AllLost)[0].is_some());
    }

    #[test]
    fn a_sector_contains_all_writes_before_the_last_one_that_is_kept() {
        let zeros = |from: &[u8]| [from, &vec![0; 510 - from.len()]].concat();
        let content = |choice| files(NameRule::Ordered, 4, choice)[0].clone();
        let only = |number| files(NameRule::Strict, 4, LossChoice::Without(number))[0].clone();
        assert_eq!(only(2), Some([zeros(b"onetwo"), b"three".to_vec()].concat()));
        assert_eq!(only(3), Some(b"onetwo".to_vec()));
        // The last write continues in a second sector, which can be there without the first one.
        let torn = content(LossChoice::Torn(3, TornPart::WithoutFirst));
        assert_eq!(torn, Some([zeros(b"onetwo"), b"\0\0ree".to_vec()].concat()));
        let grown = content(LossChoice::Torn(3, TornPart::OnlyLength));
        assert_eq!(grown, Some([zeros(b"onetwo"), vec![0; 5]].concat()));
    }

    #[test]
    fn a_recording_without_an_fsync_has_more_states() {
        let recording = recording();
        let all = Exploration { rule: NameRule::Strict, states: 10_000, seed: 1, positions: (1, 10) };
        let systematic = |recording| {
            let is_systematic = |state: &&CrashState| !matches!(state.choice, LossChoice::Random(_));
            plan(recording, all).iter().filter(is_systematic).count()
        };
        assert!(systematic(&recording.without_sync(9)) > systematic(&recording));
        assert_eq!(plan(&recording, all), plan(&recording, all));
    }
}
