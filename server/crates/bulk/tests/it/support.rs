//! A server of exports in one folder, with helper functions that fill the store and read exports.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use resources::Resources;
use serde_json::Value;
use store::space::DiskSpace;
use store::{DatabaseLimits, DatabaseUrl, Store, Versions as _};
use tempfile::TempDir;
use test_database::TestDatabase;
use trefoil_bulk::{
    Bulk, BulkClock, BulkOptions, ContentEncoding, ExportFile, ExportLevel, FileLocation, InFlight,
    JobStatus, KickOff, KickOffMethod, TypeAccess,
};

/// Time after which something that a test waits for counts as stuck. Busy machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Setup {
    pub dir: TempDir,
    pub store: Store,
    pub resources: Resources,
    pub bulk: Bulk,
    options: BulkOptions,
    time: Arc<AtomicI64>,
}

/// The number of random histories on a store engine: that of `cargo xtask soak` if it sets
/// `TREFOIL_HISTORIES_MEMORY` or the like, else `usual`.
pub fn cases(engine: &str, usual: u32) -> u32 {
    let variable = format!("TREFOIL_HISTORIES_{}", engine.to_uppercase());
    std::env::var(variable).ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

/// A store in an own database, or `None` if no PostgreSQL is installed.
pub async fn in_database() -> Option<Store> {
    let url = DatabaseUrl::new(TestDatabase::shared()?.create().unwrap(), None);
    Some(Store::postgres(&url, DatabaseLimits::default()).await.unwrap())
}

/// Runs a test that needs no other thread.
pub fn wait(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

pub const BASE: &str = "https://s.example/fhir/R4";
pub const RETENTION: Duration = Duration::from_secs(3600);

impl Setup {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Creates a setup whose output files have at most `file_size` bytes.
    pub fn with_files_of(file_size: u64) -> Self {
        Self::with(|options| options.file_size = file_size)
    }

    /// Creates a setup with changed settings.
    pub fn with(change: impl FnOnce(&mut BulkOptions)) -> Self {
        Self::on(Store::memory(), change)
    }

    /// Creates a setup with this store and changed settings.
    pub fn on(store: Store, change: impl FnOnce(&mut BulkOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let time = Arc::new(AtomicI64::new(1_800_000_000_000));
        let resources = Resources::at(store.clone(), BASE);
        let mut options = BulkOptions {
            files: FileLocation::Folder { path: dir.path().join("exports"), disk: DiskSpace::of(dir.path()) },
            lease: jiff::SignedDuration::from_secs(60),
            fhir_base: BASE.to_owned(),
            retention: RETENTION,
            file_size: 128 << 20,
            poll_limit: None,
            signing: None,
            in_flight: InFlight::default(),
            guide: trefoil_bulk::GuideVersion::V2,
            nested_groups: false,
            supporting: false,
            group_leavers: trefoil_bulk::GroupLeavers::default(),
            open_downloads: 100,
        };
        change(&mut options);
        let bulk = open(&store, &options, &time);
        Self { dir, store, resources, bulk, options, time }
    }

    /// Returns bulk export on the same store and folder, as after a restart of the process.
    pub fn reopened(&self) -> Bulk {
        open(&self.store, &self.options, &self.time)
    }

    /// Returns bulk export on the same store with changed settings, as another process.
    pub fn reopened_with(&self, change: impl FnOnce(&mut BulkOptions)) -> Bulk {
        let mut options = self.options.clone();
        change(&mut options);
        open(&self.store, &options, &self.time)
    }

    /// Returns the folder of a job's files.
    pub fn folder_of(&self, job: &str) -> PathBuf {
        self.dir.path().join("exports").join(format!("{job}-{}", self.store.id()))
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.time.load(Ordering::Relaxed)).unwrap()
    }

    pub fn pass(&self, time: Duration) {
        self.time.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub async fn put(&self, kind: &'static str, id: &str, mut body: Value) {
        body["resourceType"] = kind.into();
        body["id"] = id.into();
        self.pass(Duration::from_millis(1));
        self.resources.update(kind, id, body.to_string().as_bytes(), None, self.now()).await.unwrap();
    }

    pub async fn delete(&self, kind: &'static str, id: &str) {
        self.pass(Duration::from_millis(1));
        self.resources.delete(kind, id, None, self.now()).await.unwrap();
    }

    /// Returns a time before which all earlier writes happened, and after which all later ones will.
    pub async fn store_time(&self) -> String {
        fhir::instant::format(self.store.snapshot(self.now()).await.unwrap().time)
    }

    pub fn request(&self, level: ExportLevel, query: &[(&str, &str)]) -> KickOff {
        KickOff {
            level,
            parameters: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            by: KickOffMethod::Get,
            request_url: "https://s.example/fhir/R4/$export?the=query".to_owned(),
            client_id: "client".to_owned(),
            types: TypeAccess::All,
            groups: None,
            lenient: false,
        }
    }

    /// Starts an export and returns its manifest when it is complete.
    pub async fn export(&self, level: ExportLevel, query: &[(&str, &str)]) -> Value {
        let job = self.bulk.kick_off(self.request(level, query), self.now()).await.unwrap();
        finish(&self.bulk, &job, self.now()).await
    }

    /// Reads the files of a manifest, checks each line, and returns the ids by type. No id may occur twice.
    pub async fn read(&self, bulk: &Bulk, manifest: &Value) -> BTreeMap<String, BTreeSet<String>> {
        let mut all = BTreeMap::<String, BTreeSet<String>>::new();
        for file in manifest["output"].as_array().unwrap() {
            let text = self.file(bulk, file["url"].as_str().unwrap()).await;
            let ids = all.entry(file["type"].as_str().unwrap().to_owned()).or_default();
            let before = ids.len();
            for line in text.lines() {
                let resource: Value = serde_json::from_str(line).unwrap();
                assert_eq!(resource["resourceType"], file["type"]);
                let id = resource["id"].as_str().unwrap().to_owned();
                assert!(ids.insert(id), "twice: {line}");
            }
            assert_eq!((ids.len() - before) as u64, file["count"].as_u64().unwrap());
        }
        all
    }

    pub async fn file(&self, bulk: &Bulk, url: &str) -> String {
        let (job, name) =
            url.strip_prefix("https://s.example/fhir/R4/bulk/").unwrap().split_once('/').unwrap();
        let file = bulk.file(job, name, "client", self.now()).await.unwrap();
        String::from_utf8(bytes_of(&file, ContentEncoding::Identity, None).await).unwrap()
    }
}

/// Returns the bytes of a file, or of a range of it.
pub async fn bytes_of(file: &ExportFile, encoding: ContentEncoding, range: Option<Range<u64>>) -> Vec<u8> {
    let stream = file.open(encoding).await.unwrap();
    let range = range.unwrap_or(0..stream.length);
    let length = range.end - range.start;
    let pieces: Vec<bytes::Bytes> = stream.stream(range).try_collect().await.unwrap();
    let bytes = pieces.concat();
    assert_eq!(bytes.len() as u64, length);
    bytes
}

fn open(store: &Store, options: &BulkOptions, time: &Arc<AtomicI64>) -> Bulk {
    // Two processes on one store must not create the same id, so each has its own sequence.
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    let (time, count) = (time.clone(), AtomicU64::new(number << 32));
    let clock = BulkClock {
        now: Arc::new(move || Timestamp::from_millisecond(time.load(Ordering::Relaxed)).unwrap()),
        random: Arc::new(move |buffer| {
            let next = count.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            buffer[..8].copy_from_slice(&next.to_be_bytes());
        }),
    };
    Bulk::open(store.clone(), options.clone(), clock).unwrap()
}

/// Polls until the job is complete and returns its manifest. Checks that the progress never decreases.
pub async fn finish(bulk: &Bulk, job: &str, now: Timestamp) -> Value {
    let mut before = 0;
    loop {
        match bulk.status(job, 1, "client", &TypeAccess::All, now).await.unwrap() {
            JobStatus::InProgress { progress, retry_after_s, .. } => {
                let percent: u32 = progress.split('%').next().unwrap().parse().unwrap();
                assert!(percent >= before && percent <= 100 && progress.len() < 100 && retry_after_s >= 1);
                before = percent;
                tokio::task::yield_now().await;
            }
            JobStatus::Complete { manifest, expires } => {
                assert!(expires > now);
                return serde_json::from_slice(&manifest).unwrap();
            }
            JobStatus::TooSoon { .. } | JobStatus::Forbidden { .. } => {
                panic!("neither a poll limit nor signed URLs are configured")
            }
            JobStatus::Failed { reason, .. } => panic!("{reason}"),
        }
    }
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
