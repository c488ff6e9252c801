//! `[backup]`: backups by schedule.

use std::path::PathBuf;
use std::sync::Arc;

use backup::{BackupKey, BackupLocation};
use jiff::SignedDuration;
use toml::Spanned;

use super::documented::{implicit, settings_table};
use super::files::BucketAccess;
use super::{ConfigError, ConfigSource};

/// The form of a key, for errors.
pub const KEY_FORM: &str = "a key is 32 bytes in base64; `openssl rand -base64 32` generates one";

settings_table! {
    /// Backups by schedule. All settings are read at the start.
    pub struct BackupSection {
        /// Folder, or `s3://BUCKET/PREFIX`, for the backups; `trefoil backup` without `--to` writes there
        /// too. Endpoint and credentials of the bucket are those of `[files]`, or of the environment. Without
        /// this setting, no backups are made by schedule.
        to: Option<Spanned<String>> = None,
        /// File with the key that encrypts backups: 32 bytes in base64. A restore needs it, so keep it
        /// elsewhere.
        key_file: Option<Spanned<PathBuf>> = None,
        /// Environment variable with that key.
        key_env: Option<Spanned<String>> = None,
        /// Time between two backups, 1 to 744.
        every_h: Spanned<u32> ["hours"] = implicit(24),
        /// Time of day of a backup in UTC, as `"02:30"`; the others follow in the interval. Without it, the
        /// first one is made at the start.
        at: Option<Spanned<String>> = None,
        /// Time after which the next backup contains everything again, 1 to 366. The others contain what was
        /// written since the one before.
        full_every_days: Spanned<u32> ["days"] = implicit(7),
        /// Time for which a backup is kept, 1 to 3660. One that a kept backup follows is kept too.
        keep_days: Spanned<u32> ["days"] = implicit(30),
    }
}

/// The checked settings of backups.
#[derive(Debug)]
pub struct BackupConfig {
    /// The location and the intervals; `None` if there is no schedule.
    pub schedule: Option<BackupSchedule>,
    /// The key that encrypts all backups.
    pub key: Option<Arc<BackupKey>>,
}

/// Backups by schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSchedule {
    /// The location, as it was given.
    pub to: String,
    /// Time between two backups.
    pub every: SignedDuration,
    /// Time of day in UTC at which one is due, as the time since midnight.
    pub at: Option<SignedDuration>,
    /// Time after which a backup is full.
    pub full_every: SignedDuration,
    /// Time for which a backup is kept.
    pub keep: SignedDuration,
}

impl BackupSection {
    pub(super) fn check(
        &self,
        source: &ConfigSource<'_>,
        access: &BucketAccess,
    ) -> Result<BackupConfig, ConfigError> {
        let hours = source.bounded_number("every_h", &self.every_h, 1..=744)?;
        let full_days = source.bounded_number("full_every_days", &self.full_every_days, 1..=366)?;
        let keep_days = source.bounded_number("keep_days", &self.keep_days, 1..=3660)?;
        let at = match &self.at {
            Some(text) => Some(time_of_day(text.as_ref()).ok_or_else(|| {
                source.value_error(
                    text.span(),
                    "at",
                    "a time of day has hours and minutes, such as \"02:30\"",
                )
            })?),
            None => None,
        };
        let secret = source.read_secret("key", self.key_file.as_ref(), self.key_env.as_ref())?;
        let key = match secret {
            Some(text) => {
                let file = self.key_file.as_ref().map(Spanned::span);
                let span = file.or(self.key_env.as_ref().map(Spanned::span)).unwrap_or_default();
                let key = BackupKey::from_base64(&text);
                Some(Arc::new(key.ok_or_else(|| source.value_error(span, "key", KEY_FORM))?))
            }
            None => None,
        };
        let Some(to) = &self.to else { return Ok(BackupConfig { schedule: None, key }) };
        let to_text = match is_bucket(to.as_ref()) {
            true => {
                let location = access.location(to.as_ref());
                location.map_err(|reason| source.value_error(to.span(), "to", reason))?;
                to.as_ref().clone()
            }
            false => source.resolve_path(to.as_ref().as_ref()).display().to_string(),
        };
        let days = |days: u32| SignedDuration::from_hours(24 * i64::from(days));
        let schedule = BackupSchedule {
            to: to_text,
            every: SignedDuration::from_hours(hours.into()),
            at,
            full_every: days(full_days),
            keep: days(keep_days),
        };
        Ok(BackupConfig { schedule: Some(schedule), key })
    }
}

/// The time since midnight of a text such as `02:30`.
fn time_of_day(text: &str) -> Option<SignedDuration> {
    let (hours, minutes) =
        text.split_once(':').filter(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2)?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60)
        .then(|| SignedDuration::from_mins(i64::from(hours) * 60 + i64::from(minutes)))
}

/// `true` if a location of backups is a bucket; otherwise it is a folder.
pub fn is_bucket(location: &str) -> bool {
    location.starts_with("s3://")
}

impl BucketAccess {
    /// A folder or a bucket with backups. `creates` makes a missing folder.
    ///
    /// # Errors
    /// Returns why the location cannot be used.
    pub fn backups(&self, location: &str, creates: bool) -> Result<BackupLocation, String> {
        if is_bucket(location) {
            let bucket = self.location(location)?;
            return Ok(BackupLocation::bucket(bucket.store, bucket.prefix, location.to_owned()));
        }
        BackupLocation::folder(&PathBuf::from(location), creates).map_err(|error| error.to_string())
    }
}
