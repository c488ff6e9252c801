//! `trefoil import --feed`: lists what a syndication feed of releases offers, and downloads what the operator
//! takes, with the packages that it needs. A download whose size or checksum differs is not imported.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueHint};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use store::folder::make_folder;
use store::{ScanOptions, Versions as _};
use terminology_import::syndication::{FeedEntry, FeedFile, newest_of_each, read_feed, version_order};
use tokio::task::spawn_blocking;
use url::{Host, Url};

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use crate::node::releases::Releases;
use crate::node::saved_indexes::SavedIndexes;

/// Maximum size of a feed, in bytes.
const MAX_FEED_BYTES: u64 = 64 << 20;
/// Maximum size of a file without a stated length, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 30;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// The types of resources that an entry can contain.
const RESOURCE_TYPES: [&str; 3] = ["CodeSystem", "ValueSet", "ConceptMap"];

/// The options of the import that concern a feed.
#[derive(Default, Args, Serialize, Deserialize)]
pub struct FeedOptions {
    /// File or https URL of a syndication feed (Atom, as the national release centres publish it). Without
    /// --take and --updates, what it offers is listed
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
    /// User name for the feed and its files
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

    /// The value of `Authorization`.
    fn authorize(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match (&self.feed_user, &self.feed_password) {
            (Some(user), password) => request.basic_auth(user, password.as_deref()),
            (None, Some(token)) => request.bearer_auth(token),
            (None, None) => request,
        }
    }
}

fn is_url(feed: &str) -> bool {
    feed.starts_with("https://") || feed.starts_with("http://")
}

/// Downloads what the options take into a folder, and returns the files. `None` if nothing is to be imported.
///
/// # Errors
/// An error if the feed cannot be read, an item is unknown, or a download fails.
pub async fn fetch_items(
    services: &AdminServices<'_>,
    feed: &str,
    options: &FeedOptions,
    folder: &Path,
    events: EventSink<'_>,
) -> Result<Option<Vec<PathBuf>>> {
    let reader = FeedReader::new(feed, options)?;
    let entries = read_feed(reader.read_feed().await?)?;
    let stored = StoredVersions::read(services).await?;
    let newest = newest_of_each(&entries);
    if options.take.is_empty() && !options.updates {
        list(&entries, &newest, &stored, events);
        return Ok(None);
    }
    let mut chosen: Vec<&FeedEntry> = Vec::new();
    for name in &options.take {
        let mut named = newest.iter().copied().chain(&entries).filter(|entry| entry.is_named(name));
        let entry = named.find(|entry| entry.file.is_some() && entry.file_ending().is_some());
        chosen.push(entry.with_context(|| {
            format!("the feed has no item '{name}' that can be imported; `trefoil import --feed` alone lists its items")
        })?);
    }
    if options.updates {
        chosen.extend(newest.iter().filter(|entry| stored.state(entry) == ItemState::Update));
    }
    let is_stored = |entry: &&FeedEntry| stored.state(entry) == ItemState::Stored;
    for entry in chosen.iter().filter(|entry| is_stored(entry)) {
        events(CommandEvent::Line(format!("already there: {} {}", entry.title, entry.version)));
    }
    chosen.retain(|entry| !is_stored(entry));
    add_dependencies(&mut chosen, &entries)?;
    for entry in &chosen {
        let size =
            entry.file.as_ref().and_then(|file| file.length).map(|bytes| format!(", {} MB", bytes >> 20));
        let size = size.unwrap_or_default();
        events(CommandEvent::Line(format!("taking: {} {}{size}", entry.title, entry.version)));
    }
    let mut paths = Vec::new();
    for (number, entry) in chosen.iter().enumerate() {
        if services.stop.is_cancelled() {
            bail!("stopped: nothing was imported");
        }
        let (Some(file), Some(ending)) = (&entry.file, entry.file_ending()) else { continue };
        let name: String =
            entry.version.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = folder.join(format!("{number}-{name}.{ending}"));
        reader.download(entry, file, &path, services, events).await?;
        paths.push(path);
    }
    Ok((!paths.is_empty()).then_some(paths))
}

/// Adds the packages that the chosen ones need.
fn add_dependencies<'f>(chosen: &mut Vec<&'f FeedEntry>, entries: &'f [FeedEntry]) -> Result<()> {
    let mut place = 0;
    while let Some(entry) = chosen.get(place).copied() {
        for version in &entry.dependencies {
            if chosen.iter().any(|known| known.version == *version) {
                continue;
            }
            let mut offered = entries.iter().filter(|known| known.version == *version);
            let needed = offered.find(|known| known.file.is_some() && known.file_ending().is_some());
            chosen.push(needed.with_context(|| {
                format!(
                    "'{}' needs {version}, which the feed does not have; import both from files in one command",
                    entry.title
                )
            })?);
        }
        place += 1;
    }
    Ok(())
}

/// Lists the newest version of each item, and what was withdrawn of what is stored.
fn list(entries: &[FeedEntry], newest: &[&FeedEntry], stored: &StoredVersions, events: EventSink<'_>) {
    for entry in newest {
        let (state, FeedEntry { category, title, version, identifier, .. }) =
            (stored.state(entry).name(), *entry);
        let text = match version.starts_with(identifier) {
            true => format!("{state:<7} {category:<17} {version}  {title}"),
            false => format!("{state:<7} {category:<17} {identifier}|{version}  {title}"),
        };
        events(CommandEvent::Line(text));
    }
    for entry in entries.iter().filter(|entry| entry.is_withdrawn() && stored.has(entry)) {
        let text =
            format!("the publisher has withdrawn {} {}, which is stored", entry.identifier, entry.version);
        events(CommandEvent::Trouble(text));
    }
    let unsupported =
        entries.iter().filter(|entry| entry.file_ending().is_none() && !entry.is_withdrawn()).count();
    if unsupported > 0 {
        events(CommandEvent::Line(format!("{unsupported} entries have content that cannot be imported")));
    }
    events(CommandEvent::Line(
        "import one with --take URI, or what is newer than the stored versions with --updates".to_owned(),
    ));
}

/// The state of an item of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemState {
    Stored,
    /// An older version is stored.
    Update,
    New,
}

impl ItemState {
    fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Update => "update",
            Self::New => "new",
        }
    }
}

/// URLs and versions of the stored releases and terminology resources.
struct StoredVersions(BTreeSet<(String, String)>);

impl StoredVersions {
    async fn read(services: &AdminServices<'_>) -> Result<Self> {
        let indexes = SavedIndexes::open(services.data)?;
        let releases = Releases { indexes, resources: services.resources }.list().await?;
        let mut known: BTreeSet<_> =
            releases.into_iter().map(|release| (release.url, release.version.unwrap_or_default())).collect();
        let store = services.resources.store();
        let seq = store.last_seq().await?;
        for kind in RESOURCE_TYPES {
            let mut after = None::<String>;
            loop {
                let page = store.scan_kind(kind, ScanOptions::at(seq).after(after.as_deref())).await?;
                known.extend(page.versions.iter().filter_map(|stored| canonical(stored.body.as_ref()?)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(Self(known))
    }

    fn has(&self, entry: &FeedEntry) -> bool {
        self.versions_of(entry).any(|version| version == entry.version)
    }

    /// The stored versions of an item. Those of SNOMED CT begin with the URI of their edition.
    fn versions_of<'a>(&'a self, entry: &'a FeedEntry) -> impl Iterator<Item = &'a str> {
        let is_of = |(url, version): &&(String, String)| {
            *url == entry.identifier
                || version.strip_prefix(&entry.identifier).is_some_and(|rest| rest.starts_with("/version/"))
        };
        self.0.iter().filter(is_of).map(|(_, version)| version.as_str())
    }

    fn state(&self, entry: &FeedEntry) -> ItemState {
        match self.versions_of(entry).max_by(|a, b| version_order(a, b)) {
            _ if self.has(entry) => ItemState::Stored,
            None => ItemState::New,
            Some(newest) if version_order(newest, &entry.version).is_lt() => ItemState::Update,
            // A newer version than that of the feed is stored.
            Some(_) => ItemState::Stored,
        }
    }
}

/// URL and version of a resource.
fn canonical(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Canonical {
        url: String,
        #[serde(default)]
        version: Value,
    }
    let Canonical { url, version } = serde_json::from_slice(body).ok()?;
    Some((url, version.as_str().unwrap_or_default().to_owned()))
}

/// Reads a feed and its files.
struct FeedReader<'a> {
    options: &'a FeedOptions,
    source: FeedSource,
}

/// The place of a feed, to which the addresses of its files can be relative.
enum FeedSource {
    Folder(PathBuf, PathBuf),
    Server(Url, reqwest::Client),
}

impl<'a> FeedReader<'a> {
    fn new(feed: &str, options: &'a FeedOptions) -> Result<Self> {
        let source = if is_url(feed) {
            let url =
                Url::parse(feed).with_context(|| format!("the address of the feed {feed} is not a URL"))?;
            check_address(&url, true)?;
            let client = client(is_own(&url))?;
            FeedSource::Server(url, client)
        } else {
            let path = PathBuf::from(feed);
            let folder = path.parent().map(Path::to_owned).unwrap_or_default();
            FeedSource::Folder(path, folder)
        };
        Ok(Self { options, source })
    }

    async fn read_feed(&self) -> Result<Vec<u8>> {
        match &self.source {
            FeedSource::Folder(path, _) => {
                fs::read(path).with_context(|| format!("failed to read the feed {}", path.display()))
            }
            FeedSource::Server(url, client) => {
                let answer = self.get(client, url, url).await?;
                let mut bytes = Vec::new();
                let mut pieces = answer.bytes_stream();
                while let Some(piece) = pieces.next().await {
                    bytes.extend_from_slice(&piece.with_context(|| format!("the feed {url} ended early"))?);
                    ensure!(
                        bytes.len() as u64 <= MAX_FEED_BYTES,
                        "the feed {url} is larger than {MAX_FEED_BYTES} bytes"
                    );
                }
                Ok(bytes)
            }
        }
    }

    /// Requests a URL. The password is only sent to the server of the feed.
    async fn get(&self, client: &reqwest::Client, url: &Url, feed: &Url) -> Result<reqwest::Response> {
        let request = client.get(url.clone());
        let request = if url.origin() == feed.origin() { self.options.authorize(request) } else { request };
        let answer = request.send().await.with_context(|| format!("failed to read {url}"))?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            status @ (401 | 403) => bail!(
                "{url} was refused with status {status}; name the user with --feed-user and --feed-password-file, and check its license"
            ),
            status => bail!("{url} was answered with status {status}"),
        }
    }

    /// Downloads the file of an entry, and checks its size and checksum.
    async fn download(
        &self,
        entry: &FeedEntry,
        file: &FeedFile,
        path: &Path,
        services: &AdminServices<'_>,
        events: EventSink<'_>,
    ) -> Result<()> {
        let mut download =
            Download { file: File::create(path)?, size: 0, sha256: Sha256::new(), md5: md5::Context::new() };
        match &self.source {
            FeedSource::Folder(_, folder) if !is_url(&file.href) => {
                let from = folder.join(&file.href);
                let what = || format!("failed to read {}", from.display());
                let source = from.clone();
                download = spawn_blocking(move || {
                    std::io::copy(&mut File::open(&source)?, &mut download).map(|_| download)
                })
                .await?
                .with_context(what)?;
            }
            source => {
                let (url, feed, client) = match source {
                    FeedSource::Server(feed, client) => {
                        (feed.join(&file.href)?, feed.clone(), client.clone())
                    }
                    FeedSource::Folder(..) => {
                        let url = Url::parse(&file.href)?;
                        (url.clone(), url, client(false)?)
                    }
                };
                let feed_is_own = matches!(source, FeedSource::Server(feed, _) if is_own(feed));
                check_address(&url, feed_is_own)?;
                let answer = self.get(&client, &url, &feed).await?;
                let of = file.length.or(answer.content_length()).unwrap_or_default();
                let mut pieces = answer.bytes_stream();
                while let Some(piece) = pieces.next().await {
                    ensure!(!services.stop.is_cancelled(), "stopped: nothing was imported");
                    download.write_all(&piece.with_context(|| format!("{url} ended early; try again"))?)?;
                    let doing = format!("downloading {}", entry.title);
                    events(CommandEvent::Reading { doing, bytes: download.size.min(of), of });
                    let most = file.length.unwrap_or(MAX_FILE_BYTES);
                    ensure!(download.size <= most, "{url} is longer than {most} bytes; nothing was imported");
                }
            }
        }
        download.file.flush()?;
        download.check(&entry.title, file, events)
    }
}

/// A file that is being downloaded, with the sums of what was written.
struct Download {
    file: File,
    size: u64,
    sha256: Sha256,
    md5: md5::Context,
}

impl std::io::Write for Download {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        self.sha256.update(bytes);
        self.md5.consume(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Download {
    fn check(self, title: &str, file: &FeedFile, events: EventSink<'_>) -> Result<()> {
        const AGAIN: &str = "nothing was imported; try again, and tell the publisher if it happens again";
        if let Some(length) = file.length {
            ensure!(self.size == length, "'{title}' has {} bytes instead of {length}; {AGAIN}", self.size);
        }
        let sums = [
            ("SHA-256", &file.sha256, format!("{:x}", self.sha256.finalize())),
            ("MD5", &file.md5, format!("{:x}", self.md5.finalize())),
        ];
        for (name, stated, actual) in &sums {
            if let Some(stated) = stated {
                ensure!(stated == actual, "'{title}' has the {name} {actual} instead of {stated}; {AGAIN}");
            }
        }
        if file.sha256.is_none() && file.md5.is_none() {
            events(CommandEvent::Trouble(format!(
                "'{title}': the feed has no checksum, so only its size was checked"
            )));
        }
        Ok(())
    }
}

/// Returns whether an address is of this machine.
fn is_own(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Checks that an address is https. A feed of this machine may also lead to addresses of this machine; one of
/// others may not, because programs trust requests from their own machine.
fn check_address(url: &Url, feed_is_own: bool) -> Result<()> {
    let is_safe = match is_own(url) {
        true => feed_is_own && matches!(url.scheme(), "http" | "https"),
        false => url.scheme() == "https",
    };
    ensure!(is_safe, "the feed leads to {url}, which is not an https address of another machine");
    Ok(())
}

/// A client that follows redirects to the addresses that the feed may lead to.
fn client(feed_is_own: bool) -> Result<reqwest::Client> {
    let policy =
        reqwest::redirect::Policy::custom(move |attempt| match check_address(attempt.url(), feed_is_own) {
            Ok(()) if attempt.previous().len() <= MAX_REDIRECTS => attempt.follow(),
            _ => attempt.stop(),
        });
    let client = reqwest::Client::builder().redirect(policy).connect_timeout(Duration::from_secs(30));
    Ok(client.read_timeout(Duration::from_secs(60)).build()?)
}

/// A folder for downloads in the data folder, which is removed when this is dropped.
pub struct DownloadFolder(PathBuf);

impl DownloadFolder {
    /// Makes the folder. That of an import that was killed is removed.
    ///
    /// # Errors
    /// An error if it cannot be made.
    pub fn make(data: &Path) -> Result<Self> {
        let folder = data.join("feed-downloads");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        make_folder(&folder, 0o700)?;
        Ok(Self(folder))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DownloadFolder {
    fn drop(&mut self) {
        // The next import removes what could not be removed now.
        drop(fs::remove_dir_all(&self.0));
    }
}
