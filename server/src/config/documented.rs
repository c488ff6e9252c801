//! Declares a table of `trefoil.toml` with one row for each member: description, type, unit and default. The
//! tables of `server/docs/configuration.md` are generated from these declarations.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, ConfigSource};

/// Declares a table of `trefoil.toml`. A row has the form `member: Type [unit] = default`. The unit is
/// optional.
macro_rules! settings_table {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        pub struct $name:ident {
            $($(#[doc = $meaning:literal])+ $member:ident: $type:ty $([$unit:literal])? = $default:expr,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, serde::Deserialize)]
        $(#[derive($($derive),+)])?
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $meaning])+ pub $member: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($member: $default,)+ }
            }
        }

        #[cfg(test)]
        impl $crate::config::setting_value::SettingValue for $name {
            fn type_name() -> String {
                "table".to_owned()
            }

            fn default_text(&self) -> String {
                String::new()
            }

            fn table() -> Option<$crate::config::setting_value::Table> {
                use $crate::config::setting_value::{Member, Table};
                let default = Self::default();
                let members = vec![$(Member::new(
                    stringify!($member),
                    concat!($($meaning),+),
                    concat!($($unit)?),
                    &default.$member,
                ),)+];
                Some(Table { about: concat!($($about, "\n"),+), members })
            }
        }
    };
}
pub(super) use settings_table;

/// The default of a member whose errors contain its line.
pub fn implicit<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// A member that must be present.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Required<T>(Option<T>);

impl<T> Required<T> {
    /// The value of a missing member.
    pub const MISSING: Self = Self(None);

    /// The value. `section` is the position of the table, for the error if the member is missing.
    pub fn get(
        self,
        source: &ConfigSource<'_>,
        section: &Range<usize>,
        key: &'static str,
    ) -> Result<T, ConfigError> {
        self.0.ok_or_else(|| source.value_error(section.clone(), key, "this member is required"))
    }
}
