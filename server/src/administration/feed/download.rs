//! Reads a feed from a file or a server, and downloads its files.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use store::folder::make_folder;
use terminology_import::syndication::{FeedEntry, FeedFile};
use tokio::task::spawn_blocking;
use url::{Host, Url};

use super::options::{FeedOptions, is_url};
use crate::administration::events::{CommandEvent, EventSink};
use crate::administration::services::AdminServices;

/// Maximum size of a feed, in bytes.
const MAX_FEED_BYTES: usize = 64 << 20;
/// Maximum size of a file without a stated length, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 30;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// The file that an import locks while it uses the folder.
const LOCK: &str = "lock";

/// Reads a feed and its files.
pub(super) struct FeedReader<'a> {
    options: &'a FeedOptions,
    source: FeedSource,
    client: reqwest::Client,
}

/// Source of a feed. The addresses of its files can be relative to it.
enum FeedSource {
    File(PathBuf),
    Server(Url),
}

/// Place of a file of a feed.
enum FileSource {
    Path(PathBuf),
    Server(Url),
}

impl<'a> FeedReader<'a> {
    /// Makes a reader of the feed with this path or URL.
    ///
    /// # Errors
    /// Returns an error if the URL is not https, or if there is a password for a feed in a file: it would be
    /// sent to any server that the file names.
    pub(super) fn new(feed: &str, options: &'a FeedOptions) -> Result<Self> {
        let source = if is_url(feed) {
            let url =
                Url::parse(feed).with_context(|| format!("the URL of the feed '{feed}' is malformed"))?;
            check_address(&url, true)?;
            FeedSource::Server(url)
        } else {
            ensure!(
                !options.has_password(),
                "--feed-password-file needs a feed with an https URL, to whose server the password is sent; '{feed}' is a file"
            );
            FeedSource::File(PathBuf::from(feed))
        };
        let client = client(source.is_loopback())?;
        Ok(Self { options, source, client })
    }

    /// Reads the feed.
    ///
    /// # Errors
    /// Returns an error if the feed cannot be read or is too large.
    pub(super) async fn read_feed(&self) -> Result<Vec<u8>> {
        let url = match &self.source {
            FeedSource::Server(url) => url,
            FeedSource::File(path) => {
                return fs::read(path).with_context(|| format!("failed to read the feed {}", path.display()));
            }
        };
        let mut pieces = self.get(url).await?.bytes_stream();
        let mut feed = Vec::new();
        while let Some(piece) = pieces.next().await {
            feed.extend_from_slice(&piece.with_context(|| format!("the feed {url} ended early; try again"))?);
            ensure!(feed.len() <= MAX_FEED_BYTES, "the feed {url} is larger than {MAX_FEED_BYTES} bytes");
        }
        Ok(feed)
    }

    /// Requests a URL. The password is sent only to the server of the feed.
    async fn get(&self, url: &Url) -> Result<reqwest::Response> {
        let request = self.client.get(url.clone());
        let request = match &self.source {
            FeedSource::Server(feed) if feed.origin() == url.origin() => self.options.authorize(request),
            _ => request,
        };
        let response = request.send().await.with_context(|| format!("failed to read {url}"))?;
        match response.status().as_u16() {
            200 => Ok(response),
            status @ (401 | 403) => bail!(
                "the server refused {url} with status {status}; name a user that may read it with --feed-user and --feed-password-file"
            ),
            status => bail!("the server answered {url} with status {status} instead of 200"),
        }
    }

    /// Downloads the file of an entry into a folder and verifies it. Returns its path.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if its size or checksum differs from the feed.
    pub(super) async fn download(
        &self,
        entry: &FeedEntry,
        number: usize,
        folder: &Path,
        services: &AdminServices<'_>,
        events: EventSink<'_>,
    ) -> Result<PathBuf> {
        let file = entry.file.as_ref().context("the entry has no file")?;
        let version = entry.version.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let path = folder.join(format!("{number}-{version}.{}", entry.file_ending().unwrap_or_default()));
        let mut download = VerifiedFile::create(&path)?;
        match self.source.locate(&file.href)? {
            FileSource::Path(source) => {
                let failure = format!("failed to read {}", source.display());
                let copy = spawn_blocking(move || {
                    io::copy(&mut File::open(&source)?, &mut download).map(|_| download)
                });
                download = copy.await?.context(failure)?;
            }
            FileSource::Server(url) => {
                let response = self.get(&url).await?;
                let of = file.length.or(response.content_length()).unwrap_or_default();
                let most = file.length.unwrap_or(MAX_FILE_BYTES);
                let mut pieces = response.bytes_stream();
                while let Some(piece) = pieces.next().await {
                    ensure!(!services.stop.is_cancelled(), "stopped: nothing was imported");
                    download.write_all(&piece.with_context(|| format!("{url} ended early; try again"))?)?;
                    ensure!(download.size <= most, "{url} is longer than {most} bytes; nothing was imported");
                    let doing = format!("downloading {}", entry.title);
                    events(CommandEvent::Reading { doing, bytes: download.size.min(of), of });
                }
            }
        }
        download.verify(&entry.title, file, events)?;
        Ok(path)
    }
}

impl FeedSource {
    /// Whether the feed is served by this machine.
    fn is_loopback(&self) -> bool {
        matches!(self, Self::Server(url) if is_loopback(url))
    }

    /// Resolves the address of a file.
    fn locate(&self, href: &str) -> Result<FileSource> {
        let url = match self {
            Self::File(feed) if !is_url(href) => {
                return Ok(FileSource::Path(feed.with_file_name(href)));
            }
            Self::File(_) => Url::parse(href),
            Self::Server(feed) => feed.join(href),
        };
        let url = url.with_context(|| format!("the address '{href}' in the feed is malformed"))?;
        check_address(&url, self.is_loopback())?;
        Ok(FileSource::Server(url))
    }
}

/// A file that is written, with the checksums of its content.
struct VerifiedFile {
    file: File,
    size: u64,
    sha256: Sha256,
    md5: md5::Context,
}

impl VerifiedFile {
    fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, size: 0, sha256: Sha256::new(), md5: md5::Context::new() })
    }

    /// Compares size and checksums with the feed.
    fn verify(self, title: &str, expected: &FeedFile, events: EventSink<'_>) -> Result<()> {
        const AGAIN: &str = "nothing was imported; try again, and tell the publisher if it happens again";
        if let Some(length) = expected.length {
            ensure!(self.size == length, "'{title}' has {} bytes instead of {length}; {AGAIN}", self.size);
        }
        let checksums = [
            ("SHA-256", &expected.sha256, format!("{:x}", self.sha256.finalize())),
            ("MD5", &expected.md5, format!("{:x}", self.md5.finalize())),
        ];
        for (name, expected, actual) in &checksums {
            if let Some(expected) = expected {
                ensure!(
                    expected == actual,
                    "'{title}' has the {name} {actual} instead of {expected}; {AGAIN}"
                );
            }
        }
        if expected.sha256.is_none() && expected.md5.is_none() {
            let text = format!("the feed has no checksum of '{title}'; only its size was compared");
            events(CommandEvent::Trouble(text));
        }
        Ok(())
    }
}

impl Write for VerifiedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        self.sha256.update(bytes);
        self.md5.consume(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns whether a URL is of this machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Checks that a URL is https. Only a feed of this machine may refer to this machine: programs often trust
/// requests from their own machine.
fn check_address(url: &Url, feed_is_loopback: bool) -> Result<()> {
    let is_safe = match is_loopback(url) {
        true => feed_is_loopback && matches!(url.scheme(), "http" | "https"),
        false => url.scheme() == "https",
    };
    ensure!(
        is_safe,
        "{url} is not an https URL of another machine; download the file and import it by its path"
    );
    Ok(())
}

/// Makes a client that follows redirects to URLs that [`check_address`] accepts.
fn client(feed_is_loopback: bool) -> Result<reqwest::Client> {
    let policy = reqwest::redirect::Policy::custom(move |attempt| {
        match check_address(attempt.url(), feed_is_loopback) {
            Ok(()) if attempt.previous().len() <= MAX_REDIRECTS => attempt.follow(),
            _ => attempt.stop(),
        }
    });
    let client = reqwest::Client::builder().redirect(policy).connect_timeout(Duration::from_secs(30));
    Ok(client.read_timeout(Duration::from_secs(60)).build()?)
}

/// A folder for downloads in the data folder. It is removed when this is dropped.
pub struct DownloadFolder {
    path: PathBuf,
    /// Locked while the folder is in use. A killed process releases the lock.
    lock: File,
}

impl DownloadFolder {
    /// Makes the folder, and removes the files of an import that was killed.
    ///
    /// # Errors
    /// Returns an error if another import uses the folder, or if it cannot be made.
    pub fn make(data: &Path) -> Result<Self> {
        let path = data.join("feed-downloads");
        make_folder(&path, 0o700)?;
        let lock = File::create(path.join(LOCK))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                bail!("another import from a feed is running for {}; wait until it has ended", data.display())
            }
            other => other?,
        }
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_name() != LOCK {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { path, lock })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DownloadFolder {
    fn drop(&mut self) {
        // The next import removes what could not be removed now.
        drop(fs::remove_dir_all(&self.path));
        drop(self.lock.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_imports_do_not_share_the_folder() {
        let data = tempfile::tempdir().unwrap();
        let folder = DownloadFolder::make(data.path()).unwrap();
        fs::write(folder.path().join("part.zip"), "").unwrap();
        let error = DownloadFolder::make(data.path()).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("another import from a feed is running"), "{error}");
        assert!(folder.path().join("part.zip").exists());
        // A killed import leaves its files, without a lock.
        folder.lock.unlock().unwrap();
        let next = DownloadFolder::make(data.path()).unwrap();
        assert!(!next.path().join("part.zip").exists());
        drop(next);
        assert!(!folder.path().exists());
    }
}
