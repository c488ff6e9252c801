//! Generates the tables in `server/docs/configuration.md`.
//!
//! `TREFOIL_UPDATE_DOCS=1 cargo test -p trefoil-server --lib` writes the tables.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args as _;
use identity::model::members::client_members;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny, Visitor};
use toml::Spanned;

use super::audit::{Durability, RecordedRequests};
use super::declared::{ClientSection, FILE_MEMBERS};
use super::documented::Required;
use super::network::{PrivateHosts, ProxyHeader};
use super::node::ClockJump;
use super::provider::UpdateClaims;
use super::sections::{ConfigFile, LogFormat};
use super::setting_value::{Member, SettingValue, Table};
use super::{ENVIRONMENT, ServeFlags};
use crate::generated_docs::{check_page, member_line};

macro_rules! plain_values {
    ($($type:ty, $name:literal, $show:expr;)+) => {$(
        impl SettingValue for $type {
            fn type_name() -> String {
                $name.to_owned()
            }

            fn default_text(&self) -> String {
                let show: fn(&Self) -> String = $show;
                format!("`{}`", show(self))
            }
        }
    )+};
}
plain_values! {
    bool, "`true` or `false`", bool::to_string;
    u32, "number", u32::to_string;
    u64, "number", u64::to_string;
    usize, "number", usize::to_string;
    String, "text", |text| format!("{text:?}");
    IgnoredAny, "refused", |_| String::new();
    PathBuf, "path", |path| format!("{path:?}");
    SocketAddr, "address and port", |address| format!("\"{address}\"");
    PrivateHosts, "`true`, `false` or a list of strings", |hosts| match hosts {
        PrivateHosts::All(all) => all.to_string(),
        PrivateHosts::Named(hosts) => format!("{hosts:?}"),
    };
}

macro_rules! choices {
    ($($type:ty),+) => {$(
        impl SettingValue for $type {
            fn type_name() -> String {
                let names = variant_names::<Self>().iter();
                names.map(|name| format!("`\"{name}\"`")).collect::<Vec<_>>().join(", ")
            }

            fn default_text(&self) -> String {
                let is_default = |name: &&&str| serde_json::from_value::<Self>((**name).into()).unwrap() == *self;
                format!("`\"{}\"`", variant_names::<Self>().iter().find(is_default).unwrap())
            }
        }
    )+};
}
choices!(
    ClockJump,
    LogFormat,
    ProxyHeader,
    UpdateClaims,
    Durability,
    RecordedRequests,
    ::identity::model::declared_claim::ClaimKind,
    ::bulk::GuideVersion,
    ::bulk::GroupLeavers,
    ::resources::Validation,
    ::terminology::ConceptModelMode
);

/// The names of the variants of an enum, as its derived `Deserialize` passes them to the format.
fn variant_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    // The names are all that is read: the member has no value.
    drop(T::deserialize(VariantNames(&mut names)));
    assert!(!names.is_empty(), "the type is not an enum");
    names
}

/// A format that contains nothing, and keeps the names of the variants that it is asked for.
struct VariantNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for VariantNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("the member has no value"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = variants;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<T: SettingValue> SettingValue for Spanned<T> {
    fn type_name() -> String {
        T::type_name()
    }

    fn default_text(&self) -> String {
        self.as_ref().default_text()
    }

    fn table() -> Option<Table> {
        T::table()
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    fn type_name() -> String {
        T::type_name()
    }

    fn default_text(&self) -> String {
        self.as_ref().map_or("none".to_owned(), T::default_text)
    }
}

impl<T: SettingValue> SettingValue for Required<T> {
    fn type_name() -> String {
        T::type_name()
    }

    fn default_text(&self) -> String {
        "required".to_owned()
    }
}

impl<T: SettingValue> SettingValue for Vec<T> {
    fn type_name() -> String {
        format!("list of {}", T::type_name())
    }

    fn default_text(&self) -> String {
        assert!(self.is_empty());
        "none".to_owned()
    }

    fn table() -> Option<Table> {
        T::table()
    }
}

/// A separate table documents the members.
impl SettingValue for ClientSection {
    fn type_name() -> String {
        "table".to_owned()
    }

    fn default_text(&self) -> String {
        String::new()
    }

    fn table() -> Option<Table> {
        Some(Table { about: "", members: Vec::new() })
    }
}

/// Writes the documentation of a table and its nested tables. The name of a table is its path in the file.
fn write_tables(path: &str, table: Table, text: &mut String) {
    let (tables, rows): (Vec<_>, Vec<_>) =
        table.members.into_iter().partition(|member| member.table.is_some());
    for Member { key, type_name, default, meaning, .. } in &rows {
        text.push_str(&format!("| `{key}` | {type_name} | {default} | {meaning} |\n"));
    }
    for member in tables {
        let path = if path.is_empty() { member.key.to_owned() } else { format!("{path}.{}", member.key) };
        let table = member.table.expect("`write_tables` is called only for members that are tables");
        // `[[client]]` has a separate section.
        if table.members.is_empty() {
            continue;
        }
        let heading = if member.is_list { format!("[[{path}]]") } else { format!("[{path}]") };
        let about: Vec<&str> = table.about.lines().map(str::trim).collect();
        text.push_str(&format!("\n### `{heading}`\n\n{}\n\n", about.join("\n")));
        text.push_str("| member | type | default | meaning |\n|---|---|---|---|\n");
        write_tables(&path, table, text);
    }
}

/// The table of the command-line options of `serve`, with their help texts.
fn flags() -> String {
    let command = ServeFlags::augment_args(clap::Command::new("serve"));
    let mut text = "| flag | meaning |\n|---|---|\n".to_owned();
    for flag in command.get_arguments() {
        let value = flag.get_value_names().filter(|_| flag.get_action().takes_values());
        let value = value.map(|names| format!(" {}", names[0])).unwrap_or_default();
        let (name, help) = (flag.get_long().unwrap(), flag.get_help().unwrap());
        text.push_str(&format!("| `--{name}{value}` | {help} |\n"));
    }
    text
}

/// The table of the members of `[[client]]`.
fn client() -> String {
    let mut text = "| member | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, default, meaning) in FILE_MEMBERS {
        text.push_str(&format!("| `{name}` | text | {default} | {meaning} |\n"));
    }
    client_members().for_each(|row| text.push_str(&member_line(row)));
    text
}

fn environment() -> String {
    let rows = ENVIRONMENT.iter().map(|(name, meaning)| format!("| `{name}` | {meaning} |\n"));
    format!("| variable | meaning |\n|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn the_page_contains_the_generated_tables() {
    let mut tables = String::new();
    write_tables("", ConfigFile::table().unwrap(), &mut tables);
    let sections = [
        ("settings", format!("{tables}\n")),
        ("flags", flags()),
        ("environment", environment()),
        ("client", client()),
    ];
    check_page("configuration.md", &sections);
}

#[test]
fn the_help_of_an_option_contains_the_default_of_its_setting() {
    let file = ConfigFile::default();
    let defaults = [
        ("data", file.store.data.display().to_string()),
        ("store", file.store.engine.into_inner()),
        ("listen", file.server.listen.to_string()),
    ];
    let command = ServeFlags::augment_args(clap::Command::new("serve"));
    for (name, default) in defaults {
        let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name)).unwrap();
        let help = flag.get_help().unwrap().to_string();
        assert!(help.ends_with(&format!("[default: {default}]")), "--{name}: {help}");
    }
}
