//! Screen, forms and pane sizes of the last use of each profile, so that the program starts where the user
//! stopped.
//!
//! They are stored in `trefoil-tui/screens.json` in the state folder of the user, in a file that only the
//! user may read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::form::Form;
use crate::model::{Model, Operation, Screen};
use crate::state_file::{StateFile, state_folder};

/// Maximum number of profiles.
const MAX_PROFILES: usize = 50;
/// Maximum size of the file, in bytes.
const MAX_FILE_SIZE: u64 = 1024 * 1024;
/// Maximum length of the text of a field, in bytes. Longer ones are not stored.
const MAX_FIELD: usize = 4 * 1024;

/// State of the screens of one profile, without anything that the server answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastScreens {
    saved: Timestamp,
    screen: String,
    /// Name of the operation on the screen Codes.
    operation: String,
    pane_steps: i16,
    /// Texts of the fields by the names of form and field.
    forms: BTreeMap<String, BTreeMap<String, String>>,
}

/// The file with the state of the screens of each profile.
#[derive(Clone, Debug)]
pub struct LastScreensFile {
    file: StateFile,
}

/// The forms whose texts are stored, with their names. None of them has a field for a secret.
fn forms(model: &mut Model) -> [(&'static str, &mut Form); 6] {
    let codes = &mut model.codes;
    [
        (Operation::ValidateCode.name(), &mut codes.validate.form),
        (Operation::Subsumes.name(), &mut codes.subsumes.form),
        (Operation::Lookup.name(), &mut codes.lookup.form),
        (Operation::Expand.name(), &mut codes.expand.form),
        ("tree", &mut model.tree.form),
        ("export", &mut model.export.form),
    ]
}

impl LastScreens {
    fn of(model: &mut Model) -> Self {
        let screen = match model.screen {
            Screen::Help => model.before_help,
            // The files of an export are opened from its row.
            Screen::Files => Screen::Export,
            screen => screen,
        };
        let texts = |form: &Form| {
            let fields = form.fields.iter().filter(|field| field.text().len() <= MAX_FIELD);
            fields.map(|field| (field.name.to_owned(), field.text().to_owned())).collect()
        };
        Self {
            saved: model.now,
            screen: screen.title().to_owned(),
            operation: model.codes.operation.name().to_owned(),
            pane_steps: model.pane_steps,
            forms: forms(model).into_iter().map(|(name, form)| (name.to_owned(), texts(form))).collect(),
        }
    }

    /// Names of another version of the program are ignored.
    fn apply(&self, model: &mut Model) {
        for (name, form) in forms(model) {
            let texts = self.forms.get(name);
            for field in &mut form.fields {
                if let Some(text) = texts.and_then(|texts| texts.get(field.name)) {
                    field.set(text);
                }
            }
        }
        if let Some(screen) = Screen::ALL.into_iter().find(|screen| screen.title() == self.screen) {
            model.screen = screen;
        }
        if let Some(operation) =
            Operation::ALL.into_iter().find(|candidate| candidate.name() == self.operation)
        {
            model.codes.operation = operation;
        }
        model.pane_steps = self.pane_steps;
    }
}

/// The name of the profile of a model, and its server: a profile may get another server.
fn profile_key(model: &Model) -> String {
    format!("{} {}", model.about.base_url, model.about.profile.as_deref().unwrap_or_default())
}

impl LastScreensFile {
    /// The file in the state folder.
    ///
    /// # Errors
    /// An error if the user has no home folder.
    pub fn of_user() -> io::Result<Self> {
        Ok(Self::at(&state_folder()?.join("screens.json")))
    }

    /// The file at this path, which need not exist.
    pub fn at(path: &Path) -> Self {
        Self { file: StateFile::at(path, MAX_FILE_SIZE) }
    }

    /// Sets the screens of a model to their last state. A profile that was not used before keeps the state of
    /// the model.
    ///
    /// # Errors
    /// The reason why the file cannot be read.
    pub fn restore(&self, model: &mut Model) -> Result<(), String> {
        if let Some(last) = self.read()?.get(&profile_key(model)) {
            last.apply(model);
        }
        Ok(())
    }

    /// Stores the state of the screens of a model. A file that cannot be read is not replaced.
    ///
    /// # Errors
    /// The reason why the file cannot be read or written.
    pub fn store(&self, model: &mut Model) -> Result<(), String> {
        let mut profiles = self.read()?;
        profiles.insert(profile_key(model), LastScreens::of(model));
        while profiles.len() > MAX_PROFILES {
            let oldest = profiles.iter().min_by_key(|(_, last)| last.saved).map(|(key, _)| key.clone());
            profiles.remove(&oldest.expect("there are profiles"));
        }
        self.file.write(&profiles)
    }

    fn read(&self) -> Result<BTreeMap<String, LastScreens>, String> {
        self.file.read()
    }
}
