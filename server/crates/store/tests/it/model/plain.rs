//! The model: a plain list of all writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use trefoil_store::{ExpectVersion, IndexTerm, ResourceKey, Seq, StoreSnapshot, Version, WriteEffect};

use super::steps::Write;
use super::{COMPARTMENTS, IDS, KINDS};
use crate::{at, ready};

/// The model: all versions that were written and not erased, in order, and the current ledger.
#[derive(Default)]
pub(super) struct Model {
    pub log: Vec<Version>,
    /// The last sequence number.
    pub last: u64,
    /// Sequence number of the first version of each type, which an erasure does not change.
    pub first: BTreeMap<String, Seq>,
    pub snapshots: Vec<StoreSnapshot>,
    pub ledger: Vec<(String, Bytes, u64, Option<i64>)>,
    pub clock: i64,
}

impl Model {
    pub fn at(&self, key: &ResourceKey, seq: Seq) -> Option<&Version> {
        self.log.iter().rev().find(|version| version.key == *key && version.seq <= seq)
    }

    /// Applies a commit if its conditions hold. Returns the effects. `lastUpdated` is not known yet.
    pub fn commit(&mut self, writes: &[Write]) -> Option<Vec<WriteEffect>> {
        let (before, last, first) = (self.log.clone(), self.last, self.first.clone());
        let mut effects = Vec::new();
        for write in writes {
            let key = ResourceKey::new(KINDS[write.kind], IDS[write.id]);
            let newest = self.at(&key, Seq::LATEST).cloned();
            let live = newest.as_ref().filter(|version| !version.is_deleted());
            let holds = match write.expect {
                ExpectVersion::Any => true,
                ExpectVersion::Absent => live.is_none(),
                ExpectVersion::Version(number) => live.is_some_and(|version| version.version == number),
            };
            if !holds {
                self.log = before;
                (self.last, self.first) = (last, first);
                return None;
            }
            // Until the time is known, the model stores only the text as the body.
            let text = write.text.map(|text| Bytes::from(vec![b'0' + text]));
            let compartments = match (&text, &newest) {
                (None, Some(newest)) => newest.compartments.clone(),
                _ => membership(write.member_of),
            };
            let same = live.is_some_and(|version| {
                version.compartments == compartments && version.body.as_ref().map(last_byte) == text
            });
            let source_time = write.source.map(at);
            let newest_time = newest.as_ref().and_then(|version| version.source_time);
            let is_outdated =
                source_time.zip(newest_time).is_some_and(|(own, newest_time)| own < newest_time);
            effects.push(match (&text, live) {
                _ if write.unless_outdated && is_outdated => WriteEffect::Outdated,
                _ if write.is_check => WriteEffect::Nothing,
                (None, None) => WriteEffect::Nothing,
                (Some(_), Some(_)) if write.unless_same && same => WriteEffect::Nothing,
                (None, Some(_)) => WriteEffect::Deleted,
                (Some(_), None) => WriteEffect::Created,
                (Some(_), Some(_)) => WriteEffect::Replaced,
            });
            if effects.last() == Some(&WriteEffect::Nothing) && !write.is_check && source_time > newest_time {
                let newest = self.log.iter_mut().rev().find(|version| version.key == key);
                newest.into_iter().for_each(|version| version.source_time = source_time);
            }
            if !matches!(effects.last(), Some(WriteEffect::Nothing | WriteEffect::Outdated)) {
                self.last += 1;
                self.first.entry(key.kind.clone()).or_insert(Seq(self.last));
                self.log.push(Version {
                    version: newest.map_or(1, |version| version.version + 1),
                    key,
                    seq: Seq(self.last),
                    updated: Timestamp::UNIX_EPOCH,
                    compartments,
                    source_time,
                    body: text,
                });
            }
        }
        Some(effects)
    }

    /// Sets the time that the store has chosen for the last commit. Later reads must return this time.
    pub fn settle(&mut self, from: usize, updated: Timestamp) {
        for version in &mut self.log[from..] {
            version.updated = updated;
            version.body = version.body.take().map(|text| {
                let text = std::str::from_utf8(&text).unwrap();
                Bytes::from(ready(version.version, updated, text))
            });
        }
    }

    /// Erases resources if all of them exist, and returns whether they do.
    pub fn erase(&mut self, keys: &[ResourceKey]) -> bool {
        let exist = keys.iter().all(|key| self.at(key, Seq::LATEST).is_some());
        if exist {
            self.last += 1;
            self.log.retain(|version| !keys.contains(&version.key));
        }
        exist
    }

    pub fn live(&self, key: &str) -> Option<&(String, Bytes, u64, Option<i64>)> {
        self.ledger
            .iter()
            .find(|record| record.0 == key && record.3.is_none_or(|expires| self.clock < expires))
    }
}

pub(super) fn last_byte(body: &Bytes) -> Bytes {
    body.slice(body.len() - 1..)
}

/// Returns the term under which the model expects a text. It determines the type, as the contract demands.
pub(super) fn term(kind: &str, text: &str) -> IndexTerm {
    [b"t", &kind.as_bytes()[..1], text.as_bytes()].concat().into()
}

pub(super) fn membership(bits: u8) -> Vec<String> {
    (0..2).filter(|bit| bits & (1 << bit) != 0).map(|bit| COMPARTMENTS[bit].to_owned()).collect()
}
