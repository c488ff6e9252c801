//! Dialects of SNOMED CT: the language reference sets that a tag names, and the acceptability of a term in
//! them.

/// Aliases of dialects, with their language reference sets. The first 26 are those of ECL, appendix C; the
/// others are of national editions that it does not list.
const ALIASES: [(&str, &str); 31] = [
    ("da-dk", "554461000005103"),
    ("de", "722130004"),
    ("en-au", "32570271000036106"),
    ("en-ca", "19491000087109"),
    ("en-gb", GB_ENGLISH),
    ("en-ie", "21000220103"),
    ("en-int-gmdn", "608771002"),
    ("en-nhs-clinical", "999001261000000100"),
    ("en-nhs-dmd", "999000671000001103"),
    ("en-nhs-pharmacy", "999000691000001104"),
    ("en-nz", "271000210107"),
    ("en-uk-drug", "999000681000001101"),
    ("en-uk-ext", "999001251000000103"),
    ("en-us", US_ENGLISH),
    ("es", "448879004"),
    ("es-ar", "450828004"),
    ("es-uy", "5641000179103"),
    ("et-ee", "71000181105"),
    ("fr", "722131000"),
    ("fr-be", "21000172104"),
    ("ja", "722129009"),
    ("nb-no", "61000202103"),
    ("nl-be", "31000172101"),
    ("nl-nl", "31000146106"),
    ("nn-no", "91000202106"),
    ("sv-se", "46011000052107"),
    ("de-at", "21000234103"),
    ("de-ch", "2041000195100"),
    ("de-de", "31000274107"),
    ("fr-ch", "2021000195106"),
    ("it-ch", "2031000195108"),
];

const US_ENGLISH: &str = "900000000000509007";
const GB_ENGLISH: &str = "900000000000508004";

/// Private-use subtag of a language tag that is followed by the id of a language reference set, in groups of
/// at most eight digits (FHIR, Using SNOMED CT): `en-x-sctlang-90000000-00005080-04`.
const SCT_LANG: &str = "x-sctlang-";

/// The language reference set of an alias such as `en-gb`, in any case.
pub(crate) fn of_alias(alias: &str) -> Option<&'static str> {
    let same = |(name, _): &&(&str, &str)| name.eq_ignore_ascii_case(alias);
    ALIASES.iter().find(same).map(|(_, reference_set)| *reference_set)
}

/// Splits a language tag into the language and the id of the language reference set that it names by
/// `x-sctlang` or as an alias. A tag without a language has an empty one.
pub(crate) fn split_tag(tag: &str) -> (&str, Option<String>) {
    let at = tag.find(SCT_LANG).filter(|at| *at == 0 || tag[..*at].ends_with('-'));
    match at {
        Some(at) => {
            let id = tag[at + SCT_LANG.len()..].replace('-', "");
            (tag[..at].trim_end_matches('-'), is_reference_set(&id).then_some(id))
        }
        None => (tag, of_alias(tag).map(str::to_owned)),
    }
}

/// Returns whether a text has the form of an identifier of SNOMED CT.
fn is_reference_set(id: &str) -> bool {
    (6..=18).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Language reference sets, best first, that decide which of the terms of a concept is its display, before
/// those that its edition prefers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SnomedDialects(Vec<String>);

impl SnomedDialects {
    /// Adds a dialect, as alias (`en-gb`) or as the id of a language reference set. Returns whether the text
    /// is one of these.
    pub fn add(&mut self, dialect: &str) -> bool {
        let id = of_alias(dialect).or_else(|| is_reference_set(dialect).then_some(dialect));
        self.0.extend(id.map(str::to_owned));
        id.is_some()
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The preference of a term by the reference sets that contain it, of which the lowest is best: preferred
    /// in one of the list, then in any other; then acceptable in one of the list, or in any other; then in
    /// none.
    pub(crate) fn preference(&self, dialects: &str) -> u8 {
        if dialects.is_empty() {
            return NOT_ACCEPTED;
        }
        let rank = |dialect| {
            let place = self.0.iter().position(|id| acceptability(dialects, id) == dialect);
            place.map(|place| place.min(usize::from(ELSEWHERE) - 1) as u8)
        };
        // English is preferred in the order in which an edition without a dialect of its own has it.
        let elsewhere = || {
            let place = |id: &str| match id {
                US_ENGLISH => ELSEWHERE,
                GB_ENGLISH => ELSEWHERE + 1,
                _ => ELSEWHERE + 2,
            };
            let preferred = members(dialects).filter(|(_, kind)| *kind == Acceptability::Preferred);
            preferred.map(|(id, _)| place(id)).min()
        };
        rank(Acceptability::Preferred)
            .or_else(elsewhere)
            .or_else(|| rank(Acceptability::Acceptable).map(|place| ELSEWHERE + 3 + place))
            .unwrap_or(NOT_ACCEPTED - 1)
    }
}

/// Preference of a term that is preferred only in reference sets that the operator does not list.
pub(crate) const ELSEWHERE: u8 = 100;
/// Preference of a term that is in no language reference set.
const NOT_ACCEPTED: u8 = u8::MAX;

/// Acceptability of a term in a language reference set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Acceptability {
    Preferred,
    Acceptable,
    /// The reference set does not contain the term.
    NotAccepted,
}

impl Acceptability {
    /// Concept of the acceptability and its name.
    pub(crate) fn concept(self) -> (&'static str, &'static str) {
        match self {
            Self::Preferred => (PREFERRED, "Preferred"),
            Self::Acceptable | Self::NotAccepted => (ACCEPTABLE, "Acceptable"),
        }
    }
}

pub(crate) const PREFERRED: &str = "900000000000548007";
pub(crate) const ACCEPTABLE: &str = "900000000000549004";

/// The language reference sets of a term, with its acceptability in each.
pub(crate) fn members(dialects: &str) -> impl Iterator<Item = (&str, Acceptability)> {
    dialects.split(' ').filter_map(|item| {
        let kind = if item.ends_with('+') { Acceptability::Preferred } else { Acceptability::Acceptable };
        item.get(..item.len().checked_sub(1)?).map(|id| (id, kind))
    })
}

/// The acceptability of a term in one language reference set.
pub(crate) fn acceptability(dialects: &str, reference_set: &str) -> Acceptability {
    let mut sets = members(dialects);
    sets.find(|(id, _)| *id == reference_set).map_or(Acceptability::NotAccepted, |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_a_language_reference_set() {
        for (tag, language, id) in [
            ("en-gb", "en-gb", Some("900000000000508004")),
            ("en-x-sctlang-90000000-00005080-04", "en", Some("900000000000508004")),
            ("x-sctlang-46011000-052107", "", Some("46011000052107")),
            ("en-x-sctlang-12", "en", None),
            ("fr", "fr", Some("722131000")),
            ("en", "en", None),
            ("pt-br", "pt-br", None),
        ] {
            assert_eq!(split_tag(tag), (language, id.map(str::to_owned)), "{tag}");
        }
    }

    #[test]
    fn listed_dialects_come_before_others() {
        let mut dialects = SnomedDialects::default();
        assert!(dialects.add("EN-GB") && dialects.add("46011000052107") && !dialects.add("en-zz"));
        let order = [
            "900000000000508004+ 900000000000509007-",
            "46011000052107+",
            "900000000000509007+",
            "900000000000508004-",
            "900000000000509007-",
            "",
        ];
        let ranks: Vec<u8> = order.iter().map(|text| dialects.preference(text)).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }
}
