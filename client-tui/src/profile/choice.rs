//! The profiles among which the user can choose: those of the profile file, and the one of the command line.

use std::path::PathBuf;

use super::Profile;
use super::error::ProfileError;
use super::file::ProfileFile;
use crate::args::ProfileArgs;

/// A profile that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileChoice {
    /// Name in the profile file; `None` for the options of the command line.
    pub name: Option<String>,
    /// Base address of the server, or the options of the command line.
    pub server: String,
}

/// The origin of the profiles of this run of the program.
#[derive(Clone, Debug)]
pub struct ProfileSource {
    args: ProfileArgs,
    /// The profile file. `None` selects that of the user, whose tokens are stored, too.
    file: Option<PathBuf>,
}

impl ProfileSource {
    pub fn of_user(args: ProfileArgs) -> Self {
        Self { args, file: None }
    }

    /// The profiles of a file. Tokens stay in memory.
    pub fn at(args: ProfileArgs, file: PathBuf) -> Self {
        Self { args, file: Some(file) }
    }

    /// Reads the profile that the command line selects.
    ///
    /// # Errors
    /// The reason why there is no valid profile, and the remedy.
    pub fn selected(&self) -> Result<Profile, ProfileError> {
        self.read(&self.args)
    }

    /// Reads a profile. Options of the command line that select another server or other clients do not apply
    /// to a profile of the file.
    ///
    /// # Errors
    /// The reason why there is no valid profile, and the remedy.
    pub fn open(&self, choice: &ProfileChoice) -> Result<Profile, ProfileError> {
        match &choice.name {
            None => self.selected(),
            Some(name) => {
                let ProfileArgs { read_only, no_browser, ref file_hosts, .. } = self.args;
                let profile = Some(name.clone());
                self.read(&ProfileArgs {
                    profile,
                    read_only,
                    no_browser,
                    file_hosts: file_hosts.clone(),
                    ..ProfileArgs::default()
                })
            }
        }
    }

    fn read(&self, args: &ProfileArgs) -> Result<Profile, ProfileError> {
        let profile = Profile::read_from(args, || self.file())?;
        Ok(if self.file.is_none() { profile.with_token_file() } else { profile })
    }

    fn file(&self) -> Result<ProfileFile, ProfileError> {
        match &self.file {
            Some(path) => ProfileFile::read(path),
            None => ProfileFile::of_user(),
        }
    }

    /// All profiles by name. The first one is that of the command line, if its options select more than a
    /// profile of the file.
    ///
    /// # Errors
    /// [`ProfileError`] if the profile file is invalid.
    pub fn choices(&self) -> Result<Vec<ProfileChoice>, ProfileError> {
        let file = self.file()?;
        let options: Vec<_> =
            self.args.options().iter().map(|(name, value)| format!("--{name} {value}")).collect();
        let more_than_a_name = self.args.options().iter().any(|(name, _)| name != "profile");
        let options_choice =
            more_than_a_name.then(|| ProfileChoice { name: None, server: options.join(" ") });
        let profiles = file.profiles().map(|(name, settings)| ProfileChoice {
            name: Some(name.to_owned()),
            server: settings.base_url.clone().unwrap_or_default(),
        });
        Ok(options_choice.into_iter().chain(profiles).collect())
    }
}
