//! The choice of one version of a resource if the request names none.
//!
//! A version follows a scheme: semantic versioning, numbers, a date, an edition of SNOMED CT, or any text.
//! Versions of one scheme are compared by its rule. Versions of different schemes cannot be compared, as
//! `4.0.0` and `2018-08-12` of one HL7 code system cannot: their dates decide. If these do not decide either,
//! a semantic version is chosen first.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::canonical;

/// The scheme of a version, in descending order of preference.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VersionScheme<'v> {
    /// Semantic versioning 2.0.0: `1.2.0`, `1.2.0-beta`.
    Semantic(semver::Version),
    /// Numbers with dots: `2`, `2.80`.
    Number,
    /// `2018-08-12`, `2018-08` or `20180812`.
    Date,
    /// The URI of an edition with a date: `http://snomed.info/sct/MODULE/version/DATE`. The field is the part
    /// before `/version/`.
    Edition(&'v str),
    Text,
    Absent,
}

impl<'v> VersionScheme<'v> {
    fn of(version: Option<&'v str>) -> Self {
        let Some(version) = version.filter(|version| !version.is_empty()) else { return Self::Absent };
        if let Ok(version) = semver::Version::parse(version) {
            return Self::Semantic(version);
        }
        if is_date(version) {
            return Self::Date;
        }
        if let Some((edition, _)) = version.rsplit_once("/version/") {
            return Self::Edition(edition);
        }
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        match version.split('.').all(is_number) {
            true => Self::Number,
            false => Self::Text,
        }
    }
}

/// Returns whether a version precedes a release by its text: `6.0.0-ballot2`.
pub(crate) fn is_pre_release(version: &str) -> bool {
    matches!(VersionScheme::of(Some(version)), VersionScheme::Semantic(version) if !version.pre.is_empty())
}

/// Returns whether a version is a day or month: `2018-08-12`, `2018-08` or `20180812`, from 1900 on.
fn is_date(version: &str) -> bool {
    let digits = |part: &str, length| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: SmallVec<[&str; 3]> = version.split('-').take(4).collect();
    let in_range = |year: &str| ("1900".."2200").contains(&year);
    let month = |part: &str| digits(part, 2) && ("01"..="12").contains(&part);
    match parts.as_slice() {
        [day] => digits(day, 8) && in_range(&day[..4]) && month(&day[4..6]) && &day[6..] <= "31",
        [year, rest @ ..] if digits(year, 4) && in_range(year) => match rest {
            [one] => month(one),
            [one, day] => month(one) && digits(day, 2) && *day <= "31",
            _ => false,
        },
        _ => false,
    }
}

/// A version with the date of its resource.
#[derive(Debug)]
pub(crate) struct DatedVersion<'v> {
    version: &'v str,
    scheme: VersionScheme<'v>,
    date: Option<&'v str>,
}

/// The reason why one version is preferred to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionReason {
    /// It is newer by the scheme that both follow.
    Newer,
    /// The schemes differ, and its date is later.
    LaterDate,
    /// The schemes differ, the dates do not decide, and its scheme precedes the other one.
    Scheme,
    Equal,
}

impl<'v> DatedVersion<'v> {
    /// A version with the date of its resource. Without that date, the date in the version is used.
    pub(crate) fn new(version: Option<&'v str>, date: Option<&'v str>) -> Self {
        let scheme = VersionScheme::of(version);
        let version = version.unwrap_or_default();
        let own = match scheme {
            VersionScheme::Date => Some(version),
            VersionScheme::Edition(_) => version.rsplit('/').next().filter(|day| is_date(day)),
            _ => None,
        };
        Self { version, scheme, date: date.filter(|date| !date.is_empty()).or(own) }
    }

    fn has_scheme_of(&self, other: &Self) -> bool {
        match (&self.scheme, &other.scheme) {
            (VersionScheme::Semantic(_), VersionScheme::Semantic(_)) => true,
            (one, other) => one == other,
        }
    }

    fn by_date(&self, other: &Self) -> Ordering {
        match (self.date, other.date) {
            (Some(one), Some(other)) => digits_of(one).cmp(digits_of(other)),
            _ => Ordering::Equal,
        }
    }

    /// Compares this version with one of the same scheme. Of equal versions, one with a date is greater.
    fn by_scheme(&self, other: &Self) -> Ordering {
        let by_scheme = match (&self.scheme, &other.scheme) {
            (VersionScheme::Semantic(one), VersionScheme::Semantic(other)) => one.cmp(other),
            (VersionScheme::Date, VersionScheme::Date) => {
                digits_of(self.version).cmp(digits_of(other.version))
            }
            _ => canonical::compare(self.version, other.version),
        };
        let has_date = || self.date.is_some().cmp(&other.date.is_some());
        by_scheme.then_with(has_date).then_with(|| self.by_date(other))
    }

    /// Returns whether this version is preferred to another one, and why. The order is not transitive across
    /// schemes; [`newest`] chooses among several versions.
    pub(crate) fn compare(&self, other: &Self) -> (Ordering, VersionReason) {
        if self.has_scheme_of(other) {
            let order = self.by_scheme(other);
            return (order, if order.is_eq() { VersionReason::Equal } else { VersionReason::Newer });
        }
        match self.by_date(other) {
            Ordering::Equal => (other.scheme.cmp(&self.scheme), VersionReason::Scheme),
            order => (order, VersionReason::LaterDate),
        }
    }
}

/// The digits of a date. Dates with and without separators have the same digits.
fn digits_of(date: &str) -> impl Iterator<Item = u8> {
    date.bytes().filter(u8::is_ascii_digit)
}

/// The position of the version to choose; of equal ones the first. Only the newest version of each scheme is
/// compared with those of other schemes, so the result does not depend on the order of the list.
pub(crate) fn newest<'v>(versions: impl IntoIterator<Item = DatedVersion<'v>>) -> Option<usize> {
    let mut of_schemes: SmallVec<[(usize, DatedVersion<'v>); 2]> = SmallVec::new();
    for (index, version) in versions.into_iter().enumerate() {
        match of_schemes.iter_mut().find(|(_, best)| best.has_scheme_of(&version)) {
            Some(best) if version.by_scheme(&best.1).is_gt() => *best = (index, version),
            Some(_) => {}
            None => of_schemes.push((index, version)),
        }
    }
    of_schemes.sort_by(|(_, one), (_, other)| one.scheme.cmp(&other.scheme));
    let better = |best: (usize, DatedVersion<'v>), next: (usize, DatedVersion<'v>)| {
        if next.1.by_date(&best.1).is_gt() { next } else { best }
    };
    of_schemes.into_iter().reduce(better).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Versions with the dates of their resources.
    fn versions() -> impl Strategy<Value = Vec<(String, String)>> {
        let version = "(1[.]2[.][0-3])|(2[.][0-9])|(20(18|19)-0[1-9])|[ab]|";
        prop::collection::vec((version, "(20(17|18|19))|"), 1..8)
    }

    fn dated(list: &[(String, String)]) -> impl Iterator<Item = DatedVersion<'_>> {
        list.iter().map(|(version, date)| DatedVersion::new(Some(version), Some(date)))
    }

    fn chosen<'v>(list: &[(&'v str, &'v str)]) -> &'v str {
        let dated = list.iter().map(|(version, date)| DatedVersion::new(Some(version), Some(date)));
        list[newest(dated).unwrap()].0
    }

    #[test]
    fn versions_of_one_scheme_compare_by_it() {
        for (older, newer) in [
            ("1.2.0", "1.10.0"),
            ("1.0.0-beta", "1.0.0"),
            ("1.0.0-1", "1.0.0-alpha"),
            ("2.9", "2.80"),
            ("2", "10"),
            ("2018-08-12", "20190101"),
            ("2018-08", "2018-08-12"),
            ("http://snomed.info/sct/1/version/20240901", "http://snomed.info/sct/1/version/20250101"),
            ("alpha", "beta"),
        ] {
            // The later date of the older version does not count.
            assert_eq!(chosen(&[(older, "2025"), (newer, "2001")]), newer);
            assert_eq!(chosen(&[(newer, ""), (older, "2025")]), newer);
        }
        assert_eq!(newest([DatedVersion::new(None, None), DatedVersion::new(None, Some("2020"))]), Some(1));
        assert_eq!(
            newest([DatedVersion::new(Some("1"), Some("2019")), DatedVersion::new(Some("1"), Some("2020"))]),
            Some(1)
        );
        assert_eq!(newest([]), None);
    }

    #[test]
    fn across_schemes_the_date_decides() {
        assert_eq!(chosen(&[("2018-08-12", "2018-08-12"), ("4.0.0", "2023-11-01")]), "4.0.0");
        assert_eq!(chosen(&[("4.0.0", "2017"), ("2018-08-12", "2018-08-12")]), "2018-08-12");
        assert_eq!(chosen(&[("2.9", "2020-01-01"), ("2.0.0", "2019-12-01")]), "2.9");
        // The date in a version replaces a missing one.
        assert_eq!(chosen(&[("4.0.0", "2017"), ("2018-08-12", "")]), "2018-08-12");
        // Without dates a semantic version is chosen.
        assert_eq!(chosen(&[("2.9", ""), ("2.0.0", "2019-12-01")]), "2.0.0");
        assert_eq!(chosen(&[("2018-08-12", "2018-08-12"), ("4.0.0", "")]), "4.0.0");
        assert_eq!(chosen(&[("draft", ""), ("20230101x", ""), ("3", "")]), "3");
    }

    proptest! {
        #[test]
        fn the_choice_does_not_depend_on_the_order(
            (list, other) in versions().prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        ) {
            let choose = |list: &[(String, String)]| list[newest(dated(list)).unwrap()].clone();
            prop_assert_eq!(choose(&list), choose(&other));
        }

        #[test]
        fn no_version_is_newer_than_the_choice(list in versions()) {
            let choice = newest(dated(&list)).unwrap();
            let all: Vec<_> = dated(&list).collect();
            let expected = &all[choice];
            for version in &all {
                if version.has_scheme_of(expected) {
                    prop_assert!(version.compare(expected).0.is_le(), "{:?} {:?}", version, expected);
                } else if expected.date.is_some() && all.iter().all(|next| !next.has_scheme_of(version) || next.by_scheme(version).is_le()) {
                    // The newest version of another scheme.
                    prop_assert!(version.by_date(expected).is_le(), "{:?} {:?}", version, expected);
                }
            }
        }

        /// The order of the fields, number by number, is that of semantic versions, numbers and dates.
        #[test]
        fn versions_of_one_scheme_compare_number_by_number(
            one in (0..20_u32, 0..20_u32, 0..20_u32), two in (0..20_u32, 0..20_u32, 0..20_u32), scheme in 0..3_u8,
        ) {
            let text = |(a, b, c): (u32, u32, u32)| match scheme {
                0 => format!("{a}.{b}.{c}"),
                1 => format!("{a}.{b}"),
                _ => format!("{}-{:02}-{:02}", 2000 + a, 1 + b % 12, 1 + c),
            };
            let key = |(a, b, c): (u32, u32, u32)| match scheme {
                0 => (a, b, c),
                1 => (a, b, 0),
                _ => (a, b % 12, c),
            };
            let [first, second] = [text(one), text(two)];
            let (order, _) = DatedVersion::new(Some(&first), None).compare(&DatedVersion::new(Some(&second), None));
            prop_assert_eq!(order, key(one).cmp(&key(two)), "{} {}", first, second);
        }
    }
}
