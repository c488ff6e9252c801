//! A setting, as documented: its type and its default.

/// A table of the configuration file.
pub struct Table {
    pub about: &'static str,
    pub members: Vec<Member>,
}

/// A member of a table, as documented.
pub struct Member {
    pub(super) key: &'static str,
    pub(super) meaning: &'static str,
    pub(super) type_name: String,
    pub(super) default: String,
    /// The nested table, if the member is a table or a list of tables.
    pub(super) table: Option<Table>,
    pub(super) is_list: bool,
}

impl Member {
    pub fn new<T: SettingValue>(key: &'static str, meaning: &'static str, unit: &str, default: &T) -> Self {
        let (mut type_name, mut text) = (T::type_name(), default.default_text());
        if !unit.is_empty() {
            type_name = format!("{type_name} of {unit}");
        }
        if let ("bytes", Ok(bytes)) = (unit, text.trim_matches('`').parse::<u64>()) {
            text = format!("{text} ({} MiB)", bytes >> 20);
        }
        let is_list = type_name.starts_with("list");
        Self {
            key,
            meaning: meaning.trim().trim_end_matches('.'),
            type_name,
            default: text,
            table: T::table(),
            is_list,
        }
    }
}

/// The type of a member, as the documentation describes it.
pub trait SettingValue {
    fn type_name() -> String;

    fn default_text(&self) -> String;

    fn table() -> Option<Table> {
        None
    }
}
