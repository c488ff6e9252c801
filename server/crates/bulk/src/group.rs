//! Members of a Group: the Patients whose membership is not inactive and whose period contains the time.
//!
//! A Group is read in one pass over its bytes. The member ids are stored as one string with the end offset of
//! each id. A million members take about 15 MB, a fifth of a list of strings.

use std::collections::{BTreeMap, BTreeSet};
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

/// Reasons why Patients are not members although a Group lists them, or seems to describe them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// `actual` is false: the Group describes possible members.
    DescriptiveGroup,
    /// `active` is false.
    InactiveGroup,
    /// The Group has a `modifierExtension`, which can change the meaning of its members.
    ModifiedGroup,
    /// The membership has a `modifierExtension`, which can negate it.
    ModifiedMember,
    /// The period of the membership begins later.
    LaterMember,
    /// The member is a Group, and members of nested Groups are not exported.
    NestedGroup,
    /// The member is a Practitioner, a Device or another resource that is not a Patient, a Patient of another
    /// server, or has no reference.
    OtherMember,
}

impl Exclusion {
    /// `true` if the Group has no members for this reason.
    fn is_of_group(self) -> bool {
        matches!(self, Self::DescriptiveGroup | Self::InactiveGroup | Self::ModifiedGroup)
    }

    fn reason(self) -> &'static str {
        match self {
            Self::DescriptiveGroup => "the Group describes possible members (actual is false)",
            Self::InactiveGroup => "the Group is inactive (active is false)",
            Self::ModifiedGroup => "the Group has a modifierExtension, which this server does not support",
            Self::ModifiedMember => {
                "the membership has a modifierExtension, which this server does not support"
            }
            Self::LaterMember => "the membership begins later",
            Self::NestedGroup => {
                "members of nested Groups are exported only with [bulk] nested_groups = true"
            }
            Self::OtherMember => "the member is not a Patient of this server",
        }
    }
}

/// The Groups and members that are excluded for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    reason: Exclusion,
    /// The first references: `Patient/p`, `Group/g`.
    named: Vec<String>,
    count: usize,
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join(", "))?;
        match self.count - self.named.len() {
            0 => {}
            others => write!(f, " and {others} more")?,
        }
        write!(f, ": not exported, because {}", self.reason.reason())
    }
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

    /// The members that are not in the other list.
    pub(crate) fn without(&self, others: &Self) -> Self {
        self.iter().filter(|id| others.position(id).is_none()).collect()
    }

    /// Adds a member; the caller calls [`GroupMembers::sort`] after the last one. Rejects ids beyond the
    /// range of the 32-bit offsets, about 60 million members.
    fn push(&mut self, id: &str) -> Result<(), &'static str> {
        self.text.push_str(id);
        self.ends.push(u32::try_from(self.text.len()).map_err(|_| "the Group has too many members")?);
        Ok(())
    }

    /// Removes the members that were added last, so that `count` are left.
    fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.text.truncate(self.ends.last().map_or(0, |end| *end as usize));
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
    /// Time at which the first of the memberships begins or ends by its period.
    pub until: Option<Timestamp>,
    /// The Groups and members that are excluded, by reason.
    pub excluded: Vec<Excluded>,
    /// The reason why the Group itself has no members, also in `excluded`.
    pub exclusion: Option<Exclusion>,
}

impl CurrentMembers {
    /// `true` if the Group or a nested Group is excluded, so that nothing is known about its members.
    pub(crate) fn lacks_groups(&self) -> bool {
        self.excluded.iter().any(|excluded| excluded.reason.is_of_group())
    }
}

/// Maximum number of references in an [`Excluded`].
const MAX_NAMED: usize = 10;

/// Collects the members of a Group and of its nested Groups.
#[derive(Debug)]
pub struct MemberCollector<'a> {
    fhir_base: &'a str,
    at: Timestamp,
    members: GroupMembers,
    /// Time at which the first of the collected memberships begins or ends.
    until: Option<Timestamp>,
    /// Ids of the nested Groups found so far.
    nested: Vec<String>,
    excluded: BTreeMap<Exclusion, Excluded>,
}

impl<'a> MemberCollector<'a> {
    /// Creates a collector of the members at time `at`. References are relative, or absolute below
    /// `fhir_base`. A Patient of another server is not a member, even if its id is the same.
    pub fn new(fhir_base: &'a str, time: Timestamp) -> Self {
        let (members, nested, excluded) = (GroupMembers::default(), Vec::new(), BTreeMap::new());
        Self { fhir_base, at: time, members, until: None, nested, excluded }
    }

    /// Adds the members of one Group from its JSON. Returns the reason if the Group has no members.
    ///
    /// # Errors
    /// Returns a text that names the part of the Group that is invalid.
    pub fn add(&mut self, id: &str, group: &[u8]) -> Result<Option<Exclusion>, String> {
        let (members, excluded) = (self.members.len(), self.excluded.clone());
        let unreadable = |error: &dyn fmt::Display| format!("Group/{id} cannot be read: {error}");
        // UTF-8 is checked once, which is faster than the check of each string.
        let text = std::str::from_utf8(group).map_err(|error| unreadable(&error))?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = GroupVisitor(self).deserialize(&mut reader);
        let exclusion = read.and_then(|exclusion| reader.end().map(|()| exclusion));
        let exclusion = exclusion.map_err(|error| unreadable(&error))?;
        if let Some(reason) = exclusion {
            self.members.truncate(members);
            self.nested.clear();
            self.excluded = excluded;
            self.exclude(reason, format!("Group/{id}"));
        }
        Ok(exclusion)
    }

    fn exclude(&mut self, reason: Exclusion, reference: String) {
        let empty = Excluded { reason, named: Vec::new(), count: 0 };
        let excluded = self.excluded.entry(reason).or_insert(empty);
        excluded.count += 1;
        if excluded.named.len() < MAX_NAMED {
            excluded.named.push(reference);
        }
    }

    /// The nested Groups found since the last call.
    pub fn take_nested(&mut self) -> Vec<String> {
        std::mem::take(&mut self.nested)
    }

    /// Excludes the nested Groups found since the last call, each once.
    pub fn exclude_nested(&mut self) {
        let groups: BTreeSet<String> = self.take_nested().into_iter().collect();
        groups.into_iter().for_each(|group| self.exclude(Exclusion::NestedGroup, format!("Group/{group}")));
    }

    /// All collected members, sorted. `groups` are the Groups that were added.
    pub fn finish(mut self, groups: Vec<String>) -> CurrentMembers {
        self.members.sort();
        self.members.text.shrink_to_fit();
        self.members.ends.shrink_to_fit();
        let excluded = self.excluded.into_values().collect();
        CurrentMembers { members: self.members, groups, until: self.until, excluded, exclusion: None }
    }

    fn member(&mut self, member: &GroupMember<'_>) -> Result<(), String> {
        let reference = member.entity.as_ref().and_then(|entity| entity.reference.as_deref());
        let target = reference.and_then(|reference| match reference.strip_prefix("Patient/") {
            // Nearly all references have this form, and a Group can have a million of them.
            Some(id) if fhir::is_id(id) => Some(("Patient", id)),
            _ => local(reference, self.fhir_base),
        });
        if member.inactive {
            return Ok(());
        }
        let Some((kind, id)) = target.filter(|(kind, _)| matches!(*kind, "Patient" | "Group")) else {
            self.exclude(
                Exclusion::OtherMember,
                reference.unwrap_or("a member without a reference").to_owned(),
            );
            return Ok(());
        };
        let unreadable = |bound, text| format!("the period of {kind}/{id} has no readable {bound}: '{text}'");
        let period = member.period.as_ref();
        let begins = period.map_or(Ok(None), Period::begins_at).map_err(|text| unreadable("start", text))?;
        let ends = period.map_or(Ok(None), Period::ends_at).map_err(|text| unreadable("end", text))?;
        if ends.is_some_and(|ends| ends <= self.at) {
            return Ok(());
        }
        self.until =
            [self.until, begins.filter(|begins| *begins > self.at), ends].into_iter().flatten().min();
        let is_modified = member.modifier_extension.as_ref().is_some_and(|extensions| !extensions.is_empty());
        if is_modified || begins.is_some_and(|begins| begins > self.at) {
            let reason = if is_modified { Exclusion::ModifiedMember } else { Exclusion::LaterMember };
            self.exclude(reason, format!("{kind}/{id}"));
            return Ok(());
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
    #[serde(rename = "modifierExtension")]
    modifier_extension: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct MemberReference<'a> {
    #[serde(borrow)]
    reference: Option<Text<'a>>,
}

/// Deserializes a Group member by member, without building a list of them. Returns the reason if the Group
/// has no members.
struct GroupVisitor<'a, 'b>(&'b mut MemberCollector<'a>);

impl<'de> DeserializeSeed<'de> for GroupVisitor<'_, '_> {
    type Value = Option<Exclusion>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for GroupVisitor<'_, '_> {
    type Value = Option<Exclusion>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a Group")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut active, mut actual, mut extensions) = (None, None, None);
        while let Some(name) = map.next_key::<Text<'de>>()? {
            match &*name {
                "active" => active = map.next_value::<Option<bool>>()?,
                "actual" => actual = map.next_value::<Option<bool>>()?,
                "modifierExtension" => extensions = map.next_value::<Option<Vec<IgnoredAny>>>()?,
                "member" => map.next_value_seed(MemberListVisitor(&mut *self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let is_modified = extensions.is_some_and(|extensions| !extensions.is_empty());
        Ok(match (actual, active) {
            (Some(false), _) => Some(Exclusion::DescriptiveGroup),
            (_, Some(false)) => Some(Exclusion::InactiveGroup),
            _ => is_modified.then_some(Exclusion::ModifiedGroup),
        })
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
            { "entity": { "reference": "Patient/b" }, "period": { "start": "2020" }, "modifierExtension": [] },
            { "entity": { "reference": "Patient/gone" }, "inactive": true },
            { "entity": { "reference": "Patient/past" }, "period": { "end": "2026-01-30" } },
            { "entity": { "reference": "Patient/next" }, "period": { "end": "2026-02" } },
            { "entity": { "reference": "Patient/today" }, "period": { "end": "2026-01-31" } },
            { "entity": { "reference": "Group/other" } },
            { "entity": { "reference": "https://elsewhere.example/fhir/R4/Patient/stranger" } },
            { "entity": { "reference": "https://here.example/fhir/R40/Patient/stranger" } },
            { "entity": { "display": "nobody" } },
            { "entity": { "reference": "Patient/later" }, "period": { "start": "2026-01-31T12:00:01Z" } },
            { "entity": { "reference": "Patient/never" }, "modifierExtension": [{ "url": "urn:not" }] },
        ]});
        let gather = |group: &[u8]| {
            let mut gathering =
                MemberCollector::new(BASE, fhir::instant::parse("2026-01-31T12:00:00Z").unwrap());
            gathering.add("g", group).map(|_| (gathering.take_nested(), gathering.finish(Vec::new())))
        };
        let (nested, current) = gather(group.to_string().as_bytes()).unwrap();
        assert_eq!(current.members.iter().collect::<Vec<_>>(), ["a", "b", "next", "today"]);
        assert_eq!(current.until, fhir::instant::parse("2026-01-31T12:00:01Z").ok());
        let excluded: Vec<String> = current.excluded.iter().map(Excluded::to_string).collect();
        assert_eq!(
            excluded,
            [
                "Patient/never: not exported, because the membership has a modifierExtension, which this server does not support",
                "Patient/later: not exported, because the membership begins later",
                "https://elsewhere.example/fhir/R4/Patient/stranger, https://here.example/fhir/R40/Patient/stranger, \
                 a member without a reference: not exported, because the member is not a Patient of this server",
            ]
        );
        assert_eq!(nested, ["other"]);
        assert!(gather(br#"{"resourceType":"Group"}"#).unwrap().1.members.is_empty());
        assert!(gather(br#"{"member":{}}"#).is_err());
        assert!(gather(br#"{"member":[]} {}"#).is_err());
        let bad = br#"{"member":[{"entity":{"reference":"Patient/p"},"period":{"end":"soon"}}]}"#;
        assert!(gather(bad).unwrap_err().contains("the period of Patient/p has no readable end: 'soon'"));
        let bad = br#"{"member":[{"entity":{"reference":"Patient/p"},"period":{"start":"now"}}]}"#;
        assert!(gather(bad).unwrap_err().contains("the period of Patient/p has no readable start: 'now'"));
    }

    #[test]
    fn an_excluded_group_has_no_members() {
        let member = |id: usize, more: serde_json::Value| {
            let mut member = serde_json::json!({ "entity": { "reference": format!("Patient/p{id}") } });
            member.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            member
        };
        let later = |id| member(id, serde_json::json!({ "period": { "start": "2030" } }));
        let mut gathering = MemberCollector::new(BASE, fhir::instant::parse("2026-01-31T12:00:00Z").unwrap());
        let group = serde_json::json!({ "active": true, "actual": true, "modifierExtension": [], "member":
            std::iter::once(member(0, serde_json::json!({}))).chain((1..13).map(later)).collect::<Vec<_>>() });
        assert_eq!(gathering.add("open", group.to_string().as_bytes()), Ok(None));
        for (id, element, value, reason) in [
            ("kind", "actual", serde_json::json!(false), Exclusion::DescriptiveGroup),
            ("old", "active", serde_json::json!(false), Exclusion::InactiveGroup),
            ("odd", "modifierExtension", serde_json::json!([{ "url": "urn:not" }]), Exclusion::ModifiedGroup),
        ] {
            // The element comes after the members.
            let nested = serde_json::json!({ "entity": { "reference": "Group/nested" } });
            let members = serde_json::json!([member(20, serde_json::json!({})), later(21), nested]);
            let group = format!(r#"{{"member":{members},"{element}":{value}}}"#);
            assert_eq!(gathering.add(id, group.as_bytes()), Ok(Some(reason)), "{group}");
            assert!(gathering.take_nested().is_empty());
        }
        let current = gathering.finish(Vec::new());
        assert!(current.lacks_groups());
        assert_eq!(current.members.iter().collect::<Vec<_>>(), ["p0"]);
        let texts: Vec<String> = current.excluded.iter().map(Excluded::to_string).collect();
        assert!(texts[1].starts_with("Group/old: not exported, because the Group is inactive"), "{texts:?}");
        assert!(texts[3].contains("Patient/p10 and 2 more: not exported"), "{texts:?}");
        let mut gathering = MemberCollector::new(BASE, Timestamp::UNIX_EPOCH);
        assert!(gathering.add("bad", br#"{"active":"false"}"#).unwrap_err().contains("Group/bad"));
    }

    #[test]
    fn many_members_take_little_memory() {
        let ids: Vec<String> =
            (0..100_000_u32).map(|n| format!("p{:x}", n.wrapping_mul(0x9e37_79b9))).collect();
        let list: Vec<String> =
            ids.iter().map(|id| format!(r#"{{"entity":{{"reference":"Patient/{id}"}}}}"#)).collect();
        let group = format!(r#"{{"resourceType":"Group","member":[{}]}}"#, list.join(","));
        let mut gathering = MemberCollector::new(BASE, Timestamp::UNIX_EPOCH);
        gathering.add("g", group.as_bytes()).unwrap();
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
