//! The options of an import from a feed.

use std::fmt;
use std::fs;
use std::path::{PathBuf, absolute};

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};

/// The options of the import that concern a feed.
#[derive(Default, Args, Serialize, Deserialize)]
pub struct FeedOptions {
    /// File or https URL of a syndication feed (Atom, as national release centres publish it). Without --take
    /// and --updates, its items are listed
    #[arg(long, value_name = "FILE|URL", conflicts_with_all = ["paths", "edition", "version", "unpublished", "sheet"])]
    #[serde(default)]
    pub feed: Option<String>,
    /// Item of the feed to import, by its URI for the newest version, or by the URI of a version, with the
    /// packages that it needs; may be repeated
    #[arg(long, value_name = "ITEM", requires = "feed")]
    #[serde(default)]
    pub take: Vec<String>,
    /// Import the newest version of each item of which an older one is stored
    #[arg(long, requires = "feed")]
    #[serde(default)]
    pub updates: bool,
    /// User name for the server of the feed
    #[arg(long, value_name = "NAME", requires = "feed_password_file")]
    #[serde(default)]
    pub feed_user: Option<String>,
    /// File with the password of that user, or, without --feed-user, with a bearer token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "feed")]
    #[serde(skip)]
    pub feed_password_file: Option<PathBuf>,
    /// The content of that file.
    #[arg(skip)]
    #[serde(default)]
    feed_password: Option<String>,
}

/// Without the password.
impl fmt::Debug for FeedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedOptions").field("feed", &self.feed).finish_non_exhaustive()
    }
}

impl FeedOptions {
    /// Reads the password, and makes the path of the feed absolute.
    ///
    /// # Errors
    /// An error if the file cannot be read.
    pub fn read_input(&mut self) -> Result<()> {
        if let Some(feed) = self.feed.take() {
            self.feed = Some(match is_url(&feed) {
                true => feed,
                false => absolute(feed)?.display().to_string(),
            });
        }
        if let Some(file) = self.feed_password_file.take() {
            let text = fs::read_to_string(&file).with_context(|| {
                format!("failed to read the password of the feed from {}", file.display())
            })?;
            self.feed_password = Some(text.trim_end_matches(['\n', '\r']).to_owned());
        }
        Ok(())
    }

    /// Whether there is a password or a token.
    pub(super) fn has_password(&self) -> bool {
        self.feed_password.is_some()
    }

    /// Adds the password or the token to a request.
    pub(super) fn authorize(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match (&self.feed_user, &self.feed_password) {
            (Some(user), password) => request.basic_auth(user, password.as_deref()),
            (None, Some(token)) => request.bearer_auth(token),
            (None, None) => request,
        }
    }
}

/// Returns whether an address is a URL, and not a path.
pub(super) fn is_url(feed: &str) -> bool {
    feed.starts_with("https://") || feed.starts_with("http://")
}
