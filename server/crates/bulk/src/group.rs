//! Members of a Group: the Patients whose membership is not inactive and whose period has not ended.
//!
//! A Group is read in one pass over its bytes. The member ids are stored as one string with the end offset of
//! each id. A million members take about 15 MB, a fifth of a list of strings.

use std::fmt;

use fhir::Period;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use store::StoreError;

use resources::json::Text;
use resources::references::local;

/// Reasons why the members of a Group cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The Group does not exist in the snapshot.
    #[error("Group/{0} does not exist")]
    NoGroup(String),
    /// The Group cannot be parsed.
    #[error("{0}")]
    Bad(String),
    /// The store failed to read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Ids of Patients, sorted and without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupMembers {
    text: String,
    /// End of each id as an offset in `text`.
    ends: Vec<u32>,
}

impl GroupMembers {
    /// The number of members.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// `true` if there are no members.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The id at a position of the sorted list.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start as usize..end as usize])
    }

    /// The position of an id in the sorted list.
    pub fn position(&self, id: &str) -> Option<usize> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match self.get(middle)?.cmp(id) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// All member ids in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Adds a member; the caller calls [`GroupMembers::sort`] after the last one. Rejects ids beyond the
    /// range of the 32-bit offsets, about 60 million members.
    fn push(&mut self, id: &str) -> Result<(), &'static str> {
        self.text.push_str(id);
        self.ends.push(u32::try_from(self.text.len()).map_err(|_| "the Group has too many members")?);
        Ok(())
    }

    /// Sorts the members and removes duplicates.
    fn sort(&mut self) {
        let is_sorted = (1..self.len()).all(|index| self.get(index - 1) < self.get(index));
        if is_sorted {
            return;
        }
        let mut order: Vec<u32> = (0..u32::try_from(self.len()).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by(|a, b| self.get(*a as usize).cmp(&self.get(*b as usize)));
        order.dedup_by(|a, b| self.get(*a as usize) == self.get(*b as usize));
        let mut sorted =
            Self { text: String::with_capacity(self.text.len()), ends: Vec::with_capacity(order.len()) };
        for index in order {
            sorted.text.push_str(self.get(index as usize).unwrap_or_default());
            sorted.ends.push(sorted.text.len() as u32);
        }
        *self = sorted;
    }
}

impl<T: AsRef<str>> FromIterator<T> for GroupMembers {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut members = Self::default();
        for id in ids {
            members.push(id.as_ref()).expect("the ids of a request are shorter than 4 GiB");
        }
        members.sort();
        members
    }
}

/// The members of a Group at one time.
#[derive(Debug)]
pub struct CurrentMembers {
    /// The members of the Group and of its nested Groups.
    pub members: GroupMembers,
    /// Ids of the Groups that were read, including missing ones.
    pub groups: Vec<String>,
    /// Time at which the first of the memberships ends, if one has an end.
    pub until: Option<Timestamp>,
}

/// Collects the members of a Group and of its nested Groups.
#[derive(Debug)]
pub struct MemberCollector<'a> {
    fhir_base: &'a str,
    at: Timestamp,
    members: GroupMembers,
    /// Time at which the first of the collected memberships ends.
    until: Option<Timestamp>,
    /// Ids of the nested Groups found so far.
    nested: Vec<String>,
}

impl<'a> MemberCollector<'a> {
    /// Creates a collector of the members at time `at`. References are relative, or absolute below
    /// `fhir_base`. A Patient of another server is not a member, even if its id is the same.
    pub fn new(fhir_base: &'a str, time: Timestamp) -> Self {
        Self { fhir_base, at: time, members: GroupMembers::default(), until: None, nested: Vec::new() }
    }

    /// Adds the members of one Group from its JSON.
    ///
    /// # Errors
    /// Returns a text that names the part of the Group that is invalid.
    pub fn add(&mut self, group: &[u8]) -> Result<(), String> {
        let mut reader = serde_json::Deserializer::from_slice(group);
        let read = GroupVisitor(self).deserialize(&mut reader).and_then(|()| reader.end());
        read.map_err(|error| format!("the Group cannot be read: {error}"))
    }

    /// The nested Groups found since the last call.
    pub fn take_nested(&mut self) -> Vec<String> {
        std::mem::take(&mut self.nested)
    }

    /// All collected members, sorted. `groups` are the Groups that were added.
    pub fn finish(mut self, groups: Vec<String>) -> CurrentMembers {
        self.members.sort();
        self.members.text.shrink_to_fit();
        self.members.ends.shrink_to_fit();
        CurrentMembers { members: self.members, groups, until: self.until }
    }

    fn member(&mut self, member: &GroupMember<'_>) -> Result<(), String> {
        let reference = member.entity.as_ref().and_then(|entity| entity.reference.as_deref());
        let Some((kind, id)) = reference.and_then(|reference| local(reference, self.fhir_base)) else {
            return Ok(());
        };
        if member.inactive || !matches!(kind, "Patient" | "Group") {
            return Ok(());
        }
        let ends = member.period.as_ref().map(Period::ends_at).transpose();
        let unreadable = |end| format!("the period of {kind}/{id} has no readable end: '{end}'");
        if let Some(ends) = ends.map_err(unreadable)?.flatten() {
            if ends <= self.at {
                return Ok(());
            }
            self.until = Some(self.until.map_or(ends, |until| until.min(ends)));
        }
        if kind == "Group" {
            self.nested.push(id.to_owned());
            return Ok(());
        }
        self.members.push(id).map_err(str::to_owned)
    }
}

#[derive(Deserialize)]
struct GroupMember<'a> {
    #[serde(borrow)]
    entity: Option<MemberReference<'a>>,
    #[serde(default)]
    inactive: bool,
    #[serde(borrow)]
    period: Option<Period<'a>>,
}

#[derive(Deserialize)]
struct MemberReference<'a> {
    #[serde(borrow)]
    reference: Option<Text<'a>>,
}

/// Deserializes a Group member by member, without building a list of them.
struct GroupVisitor<'a, 'b>(&'b mut MemberCollector<'a>);

impl<'de> DeserializeSeed<'de> for GroupVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for GroupVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a Group")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if &*name == "member" {
                map.next_value_seed(MemberListVisitor(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct MemberListVisitor<'a, 'b>(&'b mut MemberCollector<'a>);

impl<'de> DeserializeSeed<'de> for MemberListVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MemberListVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of members")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(member) = list.next_element::<GroupMember<'de>>()? {
            self.0.member(&member).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "https://here.example/fhir/R4";

    #[test]
    fn only_present_patients_are_members() {
        let group = serde_json::json!({ "resourceType": "Group", "member": [
            { "entity": { "reference": "Patient/b" } },
            { "entity": { "reference": "https://here.example/fhir/R4/Patient/a" } },
            { "entity": { "reference": "Patient/b" }, "period": { "start": "2020" } },
            { "entity": { "reference": "Patient/gone" }, "inactive": true },
            { "entity": { "reference": "Patient/past" }, "period": { "end": "2026-01-30" } },
            { "entity": { "reference": "Patient/next" }, "period": { "end": "2026-02" } },
            { "entity": { "reference": "Patient/today" }, "period": { "end": "2026-01-31" } },
            { "entity": { "reference": "Group/other" } },
            { "entity": { "reference": "https://elsewhere.example/fhir/R4/Patient/stranger" } },
            { "entity": { "reference": "https://here.example/fhir/R40/Patient/stranger" } },
            { "entity": { "display": "nobody" } },
        ]});
        let gather = |group: &[u8]| {
            let mut gathering =
                MemberCollector::new(BASE, fhir::instant::parse("2026-01-31T12:00:00Z").unwrap());
            gathering.add(group).map(|()| (gathering.take_nested(), gathering.finish(Vec::new())))
        };
        let (nested, current) = gather(group.to_string().as_bytes()).unwrap();
        assert_eq!(current.members.iter().collect::<Vec<_>>(), ["a", "b", "next", "today"]);
        assert_eq!(current.until, fhir::instant::parse("2026-02-01T00:00:00Z").ok());
        assert_eq!(nested, ["other"]);
        assert!(gather(br#"{"resourceType":"Group"}"#).unwrap().1.members.is_empty());
        assert!(gather(br#"{"member":{}}"#).is_err());
        assert!(gather(br#"{"member":[]} {}"#).is_err());
        let bad = br#"{"member":[{"entity":{"reference":"Patient/p"},"period":{"end":"soon"}}]}"#;
        assert!(gather(bad).unwrap_err().contains("the period of Patient/p has no readable end: 'soon'"));
    }

    #[test]
    fn many_members_take_little_memory() {
        let ids: Vec<String> =
            (0..100_000_u32).map(|n| format!("p{:x}", n.wrapping_mul(0x9e37_79b9))).collect();
        let list: Vec<String> =
            ids.iter().map(|id| format!(r#"{{"entity":{{"reference":"Patient/{id}"}}}}"#)).collect();
        let group = format!(r#"{{"resourceType":"Group","member":[{}]}}"#, list.join(","));
        let mut gathering = MemberCollector::new(BASE, Timestamp::UNIX_EPOCH);
        gathering.add(group.as_bytes()).unwrap();
        let members = gathering.finish(Vec::new()).members;
        assert_eq!(members.len(), ids.len());
        assert!(members.text.capacity() + 4 * members.ends.capacity() < 16 * ids.len());
        assert!(members.iter().is_sorted());
        for id in ids.iter().step_by(997) {
            assert_eq!(members.get(members.position(id).unwrap()), Some(id.as_str()));
        }
        assert_eq!(members.position("p"), None);
        assert_eq!(members.position("q"), None);
    }
}
