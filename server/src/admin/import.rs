//! `trefoil import`: releases of code systems into indexes; other files and folders into the store, with a durable
//! line of progress per 1,000 lines, a bar of the bytes that are read and a report by type at the end.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use resources::{Bad, ImportOptions, Progress, Report};
use store::{Seq, Store, Versions as _};
use terminology::load::{self, Release};
use terminology::{Change, Index};
use tokio::sync::mpsc;

use super::{Event, Events, Services};
use crate::app::App;
use crate::audit::Entry;
use crate::clock::resource_id;
use crate::indexes::Indexes;

/// Bad inputs that are printed one by one.
const PRINTED: usize = 100;

/// Imports; exit code 1 where something could not be imported.
///
/// # Errors
/// A path that is not there; the store's.
pub async fn run(services: &Services<'_>, paths: Vec<PathBuf>, events: Events<'_>) -> Result<u8> {
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        bail!("there is no {}", missing.display());
    }
    let (releases, paths) = tokio::task::spawn_blocking(|| apart(paths)).await??;
    let found = releases.len();
    let indexes = Indexes::open(services.data)?;
    // While a server runs, one that is half written may be its own.
    if services.app.is_none() {
        indexes.sweep()?;
    }
    let mut refused = false;
    for release in releases {
        refused |= !take_in(&indexes, services.app, release, events).await?;
    }
    if paths.is_empty() {
        return Ok(u8::from(refused));
    }
    let names = paths.iter().map(|path| path.display().to_string()).collect();
    let random = services.clock.random.clone();
    let new_id = move || resource_id(&*random);
    let (mut printed, mut stored) = (0, 0);
    let progress = |event: Progress| match event {
        // What is said here is on the disk.
        Progress::Lines { file, lines } => {
            stored = lines;
            events(Event::Progress(format!("{file}: {lines} lines")));
        }
        Progress::Bytes { file, bytes, of } => {
            let what = match stored {
                _ if bytes == of => "checking".to_owned(),
                0 => "reading".to_owned(),
                lines => format!("{lines} lines stored, reading"),
            };
            events(reading(&what, &file, bytes, of));
        }
        Progress::Bad(bad) => {
            printed += 1;
            if printed <= PRINTED {
                events(Event::Trouble(describe(&bad)));
            }
        }
        Progress::File { .. } => stored = 0,
        Progress::Done { .. } => {}
    };
    let now = || services.clock.now();
    let before = services.resources.store().last_seq();
    let report = services.resources.import(paths, ImportOptions::default(), new_id, progress, now).await?;
    // One event for all: an import can have millions of resources.
    services.audit.add(&Entry::Import { stored: report.total(), paths: names });
    // A folder that held nothing but releases needs no second report.
    if found == 0 || report.total() > 0 || report.bad_total > 0 {
        tell(&report, events);
    }
    if report.resources.contains_key("CodeSystem") {
        tell_circles(services.resources.store(), before, events).await?;
    }
    Ok(u8::from(report.bad_total > 0 || refused))
}

/// The releases of code systems among the paths and in their folders, and what else there is to import.
fn apart(paths: Vec<PathBuf>) -> std::io::Result<(Vec<Release>, Vec<PathBuf>)> {
    let (mut releases, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        if !find_releases(&path, &mut releases)? {
            others.push(path);
        }
    }
    Ok((load::arrange(releases), others))
}

/// Collects the releases at or below a path. Is it one itself?
fn find_releases(path: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<bool> {
    if load::is_release(path) {
        found.push(path.to_owned());
        return Ok(true);
    }
    if path.is_dir() {
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // Links are not followed: they may lead in a circle.
            if !entry.file_type()?.is_symlink() {
                inside.push(entry.path());
            }
        }
        inside.sort();
        for path in inside {
            find_releases(&path, found)?;
        }
    }
    Ok(false)
}

/// Loads one release: whole, or not at all and `false`. One that is there with the same content is left as it is, so
/// that an import that was cut off goes on where it stood.
async fn take_in(indexes: &Indexes, app: Option<&App>, release: Release, events: Events<'_>) -> Result<bool> {
    let (sender, mut progress) = mpsc::unbounded_channel();
    let indexes = indexes.clone();
    let work = tokio::task::spawn_blocking(move || {
        let unsaved = |error: std::io::Error| load::LoadError {
            file: release.path().display().to_string(),
            line: None,
            why: format!("its index could not be saved: {error}"),
        };
        let tell = |step: load::Progress<'_>, what: &str| {
            drop(sender.send(reading(what, step.file, step.bytes, step.of)));
        };
        let hash = release.content_hash(&mut |step| tell(step, "looking whether it is there already:"))?;
        if let Some((id, index)) = indexes.release_of(&hash).map_err(unsaved)? {
            return Ok((id, index, "already there"));
        }
        let loaded = release.load(&mut |step| match step.bytes < step.of {
            true => tell(step, "reading"),
            false => tell(step, "making the index after"),
        })?;
        let id = indexes.keep_release(&loaded.index, &hash).map_err(unsaved)?;
        Ok::<_, load::LoadError>((id, loaded.index, loaded.format))
    });
    while let Some(event) = progress.recv().await {
        events(event);
    }
    let (id, index, what) = match work.await? {
        Ok(done) => done,
        Err(error) => {
            events(Event::Trouble(format!("{error}; nothing of this release was changed")));
            return Ok(false);
        }
    };
    let version = index.version().unwrap_or("no version");
    let concepts = index.concepts();
    events(Event::Line(format!("{what:<28} {concepts:>9}  {} {version}, as {id}", index.url())));
    if let Some(app) = app {
        app.terminology.apply([Change::Index { id, index }]);
    }
    Ok(true)
}

/// How far reading is. The file stands without its folders, as the line is short.
fn reading(what: &str, file: &str, bytes: u64, of: u64) -> Event {
    let file = file.rsplit('/').next().unwrap_or(file);
    Event::Reading { doing: format!("{what} {file}"), bytes, of }
}

/// Names the code systems that were written since then and whose hierarchy runs in a circle: they are stored, but
/// nothing can be said of what is a kind of what in them.
async fn tell_circles(store: &Store, since: Seq, events: Events<'_>) -> Result<()> {
    const PAGE: usize = 1_000;
    let mut at = since;
    loop {
        let changes = store.changes(at, PAGE).await?;
        let Some(last) = changes.last() else { return Ok(()) };
        at = last.seq;
        for change in changes.into_iter().filter(|change| change.key.kind == "CodeSystem") {
            let version = store.read(&change.key, change.seq).await?;
            let Some(bytes) = version.and_then(|version| version.body) else { continue };
            if let Some(circle) = tokio::task::spawn_blocking(move || Index::circle_in(&bytes)).await? {
                let (id, codes) = (change.key.id, circle.join(" > "));
                events(Event::Trouble(format!("CodeSystem/{id}: its hierarchy runs in a circle: {codes}")));
            }
        }
    }
}

fn describe(bad: &Bad) -> String {
    match bad.line {
        Some(line) => format!("{}:{line}: {}", bad.file, bad.reason),
        None => format!("{}: {}", bad.file, bad.reason),
    }
}

fn tell(report: &Report, events: Events<'_>) {
    for (kind, count) in &report.resources {
        let mut parts = Vec::new();
        for (number, what) in [(count.created, "new"), (count.replaced, "changed"), (count.same, "unchanged")]
        {
            parts.extend((number > 0).then(|| format!("{number} {what}")));
        }
        events(Event::Line(format!("{kind:<28} {:>9}  {}", count.total(), parts.join(", "))));
    }
    events(Event::Line(format!("{:<28} {:>9}  from {} files", "total", report.total(), report.files)));
    if report.skipped_total > 0 {
        events(Event::Line(format!("left aside: {} files that hold no resources", report.skipped_total)));
    }
    if report.bad_total > 0 {
        let more = report.bad_total.saturating_sub(PRINTED as u64);
        let more = if more > 0 { format!(", {more} of them not shown") } else { String::new() };
        events(Event::Trouble(format!("{} inputs could not be imported{more}", report.bad_total)));
    }
}
