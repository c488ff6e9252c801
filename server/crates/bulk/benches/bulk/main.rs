//! Benchmark of bulk export, run by `cargo xtask bench bulk`: it writes a population into the file engine and
//! exports it. It measures resources per CPU second, the ratio to `cat in > out` of the same bytes in the
//! same run, and the peak memory. Each step runs in a separate process, so that the figures of the steps do
//! not mix.

mod import;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use resources::filter::TypeFilter;
use resources::{ImportOptions, Resources, Restriction};
use store::{Store, Versions as _};
use trefoil_bulk::{
    Bulk, BulkClock, BulkOptions, ExportLevel, FileLocation, GuideVersion, InFlight, JobStatus, KickOff,
    KickOffMethod, TypeAccess,
};
use trefoil_fixtures::population;

/// Maximum resident memory of a step in MiB.
const MIB: u64 = 96;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("--ingest") => return ingest(Path::new(&args[1]), Path::new(&args[2])),
        Some("--settle") => return settle(Path::new(&args[1])),
        Some("--export") => return export(Path::new(&args[1]), &args[2]),
        Some("--search") => {
            return search(Path::new(&args[1]), args[2].parse().expect("a number of patients"));
        }
        Some("--increment") => return increment(Path::new(&args[1])),
        Some("--crowd") => return crowd(Path::new(&args[1])),
        _ => {}
    }
    if args.iter().any(|arg| arg == "--import") {
        return import::measure(5);
    }
    let number = |flag: &str| args.iter().find_map(|arg| arg.strip_prefix(flag)?.parse::<u64>().ok());
    let (resources, rounds) = (number("--resources=").unwrap_or(1_000_000), number("--rounds=").unwrap_or(5));
    println!("{:<52} {:>14} {:>14}", "work", "", "goal");
    let rates = [resources / 10, resources].map(|resources| measure(resources, rounds));
    told("median cost of a resource, relative to a tenth", format!("{:.2}", rates[0] / rates[1]), "1.25");
    measure_crowd();
    import::measure(rounds);
}

fn told(work: &str, figure: String, goal: &str) {
    println!("{work:<52} {figure:>14} {goal:>14}");
}

/// Fills a store in `folder` with about `resources` resources, and waits until its compaction is done.
/// Returns the store's data folder.
fn fill(folder: &Path, resources: u64) -> PathBuf {
    let patients = resources / population::EACH;
    println!("{} resources of {patients} patients", patients * population::EACH);
    let (files, data) = (folder.join("in"), folder.join("data"));
    write_population(&files, patients);
    for (id, every) in [("tenth", 10), ("ten", (patients / 10).max(1))] {
        std::fs::write(files.join(format!("9-group-{id}.json")), population::group(id, patients, every))
            .expect("the file can be written");
    }
    step(&["--ingest", text(&data), text(&files)]);
    step(&["--settle", text(&data)]);
    data
}

/// Writes a population into a new folder, a file for each type.
fn write_population(files: &Path, patients: u64) {
    std::fs::create_dir(files).expect("the new folder can be created");
    for (number, kind) in population::kinds().enumerate() {
        let path = files.join(format!("{number}-{kind}.ndjson"));
        let mut out = std::io::BufWriter::with_capacity(
            1 << 20,
            std::fs::File::create(path).expect("the new file can be created"),
        );
        population::write(kind, patients, &mut out).expect("the file can be written");
    }
}

/// Returns the median number of resources per CPU second in system-level exports.
fn measure(resources: u64, rounds: u64) -> f64 {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let data = fill(folder.path(), resources);
    step(&["--search", text(&data), &(resources / population::EACH).to_string()]);
    step(&["--increment", text(&data)]);
    let (mut ratios, mut rates, mut group_rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        println!("round {round}");
        let exported = data.join("exports");
        drop(std::fs::remove_dir_all(&exported));
        let (system, rate) = step(&["--export", text(&data), "system"]);
        rates.push(rate);
        let cat = cat(&exported, folder.path());
        told("cat in > out of the same files", format!("{:.0} ms", cat * 1e3), "");
        told("system export, speed relative to cat", format!("{:.2}", cat / system), "0.3");
        ratios.push(cat / system);
        group_rates.push(step(&["--export", text(&data), "group"]).1);
        step(&["--export", text(&data), "ten members"]);
    }
    told("median: system export, speed relative to cat", format!("{:.2}", median(&mut ratios)), "0.3");
    let (rate, group) = (median(&mut rates), median(&mut group_rates));
    told("median: system export, resources per CPU second", format!("{rate:.0}"), "500000");
    told("median: group export, cost relative to system", format!("{:.2}", rate / group), "1.5");
    step(&["--export", text(&data), "writers"]);
    rate
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures a kick-off for a Group with a million members that do not exist.
fn measure_crowd() {
    println!("a Group of 1000000 members");
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let (files, data) = (folder.path().join("in"), folder.path().join("data"));
    std::fs::create_dir(&files).expect("the new folder can be created");
    std::fs::write(files.join("group.json"), population::group("crowd", 1_000_000, 1))
        .expect("the file can be written");
    step(&["--ingest", text(&data), text(&files)]);
    step(&["--crowd", text(&data)]);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path of the benchmark is UTF-8")
}

/// Runs a step in a separate process. Returns the seconds and the resources per CPU second from its line
/// `figures`, if it prints one.
fn step(args: &[&str]) -> (f64, f64) {
    let this = std::env::current_exe().expect("the path of the running program is known");
    let output = Command::new(this)
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .expect("the benchmark can start itself");
    assert!(output.status.success(), "{args:?} failed");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut rates = (0.0, 0.0);
    for line in stdout.lines() {
        match line.strip_prefix("figures ").and_then(|figures| figures.split_once(' ')) {
            Some((seconds, rate)) => {
                rates = (
                    seconds.parse().expect("the seconds are a number"),
                    rate.parse().expect("the rate is a number"),
                );
            }
            None => println!("{line}"),
        }
    }
    rates
}

/// Returns the seconds that `cat in > out` takes for all files of an export, with new output files.
fn cat(exported: &Path, folder: &Path) -> f64 {
    let mut files = Vec::new();
    walk(exported, &mut files);
    let out = folder.join("copied");
    std::fs::create_dir_all(&out).expect("the new folder can be created");
    let started = Instant::now();
    for (number, file) in files.iter().enumerate() {
        let target =
            std::fs::File::create(out.join(number.to_string())).expect("the new file can be created");
        let copied = Command::new("cat").arg(file).stdout(target).status();
        assert!(copied.expect("cat is installed").success());
    }
    let seconds = started.elapsed().as_secs_f64();
    std::fs::remove_dir_all(out).expect("the folder was created by this function");
    seconds
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of the exports exists").flatten() {
        if entry.path().is_dir() { walk(&entry.path(), files) } else { files.push(entry.path()) }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the runtime can start its threads")
}

fn open(data: &Path) -> Store {
    Store::open(&data.join("store")).expect("the store opens")
}

fn ingest(data: &Path, files: &Path) {
    let bytes: u64 = std::fs::read_dir(files)
        .expect("the folder of the input files exists")
        .flatten()
        .map(|f| f.metadata().map_or(0, |m| m.len()))
        .sum();
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let total = runtime().block_on(async {
        let resources = Resources::new(open(data));
        let options = ImportOptions::default();
        let new_id = || unreachable!("all imported resources have ids");
        let imported = resources
            .import(vec![files.to_owned()], options, new_id, |_| {}, Timestamp::now, std::future::pending())
            .await;
        let imported = imported.expect("the store can be written");
        assert_eq!(imported.bad_total, 0);
        imported.total()
    });
    let seconds = started.elapsed().as_secs_f64();
    told("ingest", format!("{:.0} MB/s", bytes as f64 / 1e6 / seconds), "40 MB/s");
    told("ingest, resources per CPU second", format!("{:.0}", total as f64 / (cpu_seconds() - cpu)), "");
    told_memory("ingest, maximum resident memory", MIB);
}

/// Waits until the compaction of the store is done.
fn settle(data: &Path) {
    let store = open(data);
    let mut idle = 0;
    while idle < 10 {
        let before = cpu_seconds();
        std::thread::sleep(Duration::from_millis(200));
        idle = if cpu_seconds() - before < 0.02 { idle + 1 } else { 0 };
    }
    drop(store);
}

fn export(data: &Path, which: &str) {
    runtime().block_on(async {
        let store = open(data);
        let resources = Resources::new(store.clone());
        let bulk = open_bulk(data, store);
        let stop = Arc::new(AtomicBool::new(false));
        let writes = Arc::new(AtomicU64::new(0));
        let is_crowded = which == "writers";
        let writers = if is_crowded { 8 } else { 0 };
        let writers: Vec<_> = (0..writers)
            .map(|writer| tokio::spawn(write(writer, resources.clone(), stop.clone(), writes.clone())))
            .collect();
        let (started, cpu) = (Instant::now(), cpu_seconds());
        let level = match which {
            "group" => ExportLevel::Group("tenth".to_owned()),
            "ten members" => ExportLevel::Group("ten".to_owned()),
            _ => ExportLevel::System,
        };
        let job = bulk.kick_off(request(level), Timestamp::now()).await.expect("the kick-off is accepted");
        let began = started.elapsed();
        let manifest = finished(&bulk, &job).await;
        let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("the writer does not panic");
        }
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("the manifest is JSON");
        let files = manifest["output"].as_array().expect("the manifest has the list output");
        let count: u64 = files.iter().filter_map(|file| file["count"].as_u64()).sum();
        if which == "ten members" {
            told("export of ten members, CPU", format!("{:.1} ms", cpu * 1e3), "");
        } else if is_crowded {
            let rate = writes.load(Ordering::Relaxed) as f64 / seconds;
            told("eight concurrent writers, writes per second", format!("{rate:.0}"), "");
        } else {
            let goal = if which == "group" { "system / 1.5" } else { "500000" };
            let rate = |seconds: f64| format!("{:.0}", count as f64 / seconds);
            told(&format!("{which} export, resources per CPU second"), rate(cpu), goal);
            told(&format!("{which} export, resources per second"), rate(seconds), "");
            told(
                &format!("{which} export, kick-off"),
                format!("{:.1} ms", began.as_secs_f64() * 1e3),
                "100 ms",
            );
            println!("figures {seconds} {}", count as f64 / cpu);
        }
        told_memory(&format!("{which} export, maximum resident memory"), MIB);
    });
}

/// Measures searches for random patients: the median of the time until a page is there.
fn search(data: &Path, patients: u64) {
    let runtime = runtime();
    let resources = Resources::new(open(data));
    let mut random = fastrand::Rng::with_seed(patients);
    for (what, search, count, goal) in [
        ("search by identifier", "Patient?identifier=urn:population|mrn-{}", 1, "200 us"),
        ("search of 9 Encounters by patient", "Encounter?patient=p{:07}", 9, "200 us"),
        ("search of 10 Conditions by patient", "Condition?subject=Patient/p{:07}", 10, "200 us"),
        ("search by patient and status", "Observation?patient=p{:07}&status=final", 75, ""),
        ("search by birth date", "Patient?birthdate=1980-{}", 0, ""),
    ] {
        let mut times = Vec::new();
        for _ in 0..1_000 {
            let patient = random.u64(..patients);
            let search = match search {
                search if search.contains("{:07}") => search.replace("{:07}", &format!("{patient:07}")),
                search if count == 0 => {
                    search.replace("{}", &format!("{:02}-{:02}", 1 + patient % 12, 1 + patient % 28))
                }
                search => search.replace("{}", &patient.to_string()),
            };
            let kind = fhir::resource_type(search.split('?').next().unwrap_or_default()).expect("a type");
            let started = Instant::now();
            let filter = TypeFilter::read(&search, "", Timestamp::UNIX_EPOCH).expect("the search is valid");
            let view = resources.restricted_to(Restriction::None);
            let page =
                runtime.block_on(view.search(kind, Some(&filter), None, 100)).expect("the store can be read");
            times.push(started.elapsed().as_secs_f64() * 1e6);
            assert!(count == 0 || page.resources.len() == count, "{search}: {}", page.resources.len());
        }
        told(what, format!("{:.0} us", median(&mut times)), goal);
    }
}

/// Measures an export of ten changes.
fn increment(data: &Path) {
    runtime().block_on(async {
        let store = open(data);
        let resources = Resources::new(store.clone());
        let bulk = open_bulk(data, store.clone());
        let mut cpu_ms = Vec::new();
        for round in 0..20 {
            let since = store.snapshot(Timestamp::now()).await.expect("the store can be written").time;
            for number in 0..10 {
                let id = format!("increment-{number}");
                let body =
                    format!(r#"{{"resourceType":"Basic","id":"{id}","author":{{"display":"{round}"}}}}"#);
                let put = resources.update("Basic", &id, body.as_bytes(), None, Timestamp::now());
                put.await.expect("the store can be written");
            }
            let mut request = request(ExportLevel::System);
            request.parameters.push(("_since".to_owned(), since.to_string()));
            let (started, cpu) = (Instant::now(), cpu_nanoseconds());
            let job = bulk.kick_off(request, Timestamp::now()).await.expect("the kick-off is accepted");
            finished(&bulk, &job).await;
            cpu_ms.push((cpu_nanoseconds() - cpu) as f64 / 1e6);
            if round == 0 {
                told(
                    "export of 10 changes, first",
                    format!("{:.1} ms", started.elapsed().as_secs_f64() * 1e3),
                    "",
                );
            }
        }
        told("export of 10 changes, CPU", format!("{:.1} ms", median(&mut cpu_ms)), "2 ms");

        let mut cpu_ms = Vec::new();
        for number in 0..20 {
            let mut request = request(ExportLevel::System);
            let filter = format!("Observation?date=2020-05-{:02}", 1 + number);
            request.parameters.push(("_type".to_owned(), "Observation".to_owned()));
            request.parameters.push(("_typeFilter".to_owned(), filter));
            let cpu = cpu_nanoseconds();
            let job = bulk.kick_off(request, Timestamp::now()).await.expect("the kick-off is accepted");
            finished(&bulk, &job).await;
            cpu_ms.push((cpu_nanoseconds() - cpu) as f64 / 1e6);
        }
        told("export of the Observations of a day, CPU", format!("{:.1} ms", median(&mut cpu_ms)), "");
    });
}

fn request(level: ExportLevel) -> KickOff {
    KickOff {
        level,
        parameters: Vec::new(),
        by: KickOffMethod::Get,
        request_url: String::new(),
        client_id: "bench".to_owned(),
        types: TypeAccess::All,
        groups: None,
        lenient: false,
    }
}

async fn finished(bulk: &Bulk, job: &str) -> Vec<u8> {
    loop {
        let status = bulk.status(job, 1, "bench", &TypeAccess::All, Timestamp::now());
        match status.await.expect("the job exists") {
            JobStatus::InProgress { .. } | JobStatus::TooSoon { .. } => {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
            JobStatus::Complete { manifest, .. } => return manifest.to_vec(),
            JobStatus::Failed { reason, .. } => panic!("{reason}"),
            JobStatus::Forbidden { kind } => panic!("{kind}"),
        }
    }
}

/// Measures the memory of a kick-off for the Group with a million members.
fn crowd(data: &Path) {
    runtime().block_on(async {
        let store = open(data);
        let bulk = open_bulk(data, store);
        let before = resident("VmRSS:");
        // Writing 5 resets the peak memory of the process.
        drop(std::fs::write("/proc/self/clear_refs", "5"));
        let started = Instant::now();
        let level = ExportLevel::Group("crowd".to_owned());
        let job = bulk.kick_off(request(level), Timestamp::now()).await.expect("the kick-off is accepted");
        let began = started.elapsed();
        finished(&bulk, &job).await;
        told("kick-off", format!("{:.1} ms", began.as_secs_f64() * 1e3), "100 ms");
        told(
            "additional memory of the kick-off",
            format!("{} MiB", resident("VmHWM:").saturating_sub(before)),
            "50 MiB",
        );
    });
}

fn open_bulk(data: &Path, store: Store) -> Bulk {
    let ids = AtomicU64::new(u64::from(std::process::id()) << 32);
    let random = move |bytes: &mut [u8]| {
        for chunk in bytes.chunks_mut(8) {
            let next = ids.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).to_le_bytes();
            chunk.copy_from_slice(&next[..chunk.len()]);
        }
    };
    let options = BulkOptions {
        files: FileLocation::Folder { path: data.join("exports"), disk: store::space::DiskSpace::of(data) },
        lease: jiff::SignedDuration::from_secs(60),
        fhir_base: "https://s.example/fhir/R4".to_owned(),
        retention: Duration::from_secs(3600),
        guide: GuideVersion::default(),
        nested_groups: false,
        supporting: false,
        group_leavers: trefoil_bulk::GroupLeavers::default(),
        open_downloads: 100,
        file_size: 128 << 20,
        poll_limit: None,
        signing: None,
        in_flight: InFlight::default(),
    };
    let clock = BulkClock { now: Arc::new(Timestamp::now), random: Arc::new(random) };
    Bulk::open(store, options, clock).expect("the folder of the exports can be created")
}

/// Writes Observations until `stop` is set.
async fn write(writer: u32, resources: Resources, stop: Arc<AtomicBool>, count: Arc<AtomicU64>) {
    let note = "n".repeat(900);
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (id, patient) = (format!("w{writer}-{number}"), number % 1_000);
        let body = format!(
            r#"{{"resourceType":"Observation","id":"{id}","status":"final","subject":{{"reference":"Patient/p{patient:07}"}},"note":[{{"text":"{note}"}}]}}"#
        );
        let put = resources.update("Observation", &id, body.as_bytes(), None, Timestamp::now());
        put.await.expect("the store can be written");
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn told_memory(what: &str, goal: u64) {
    told(what, format!("{} MiB", resident("VmHWM:")), &format!("{goal} MiB"));
}

/// Returns the resident memory of this process in MiB: the current (`VmRSS:`) or the peak (`VmHWM:`).
fn resident(which: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(which));
    let kib: u64 = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default();
    kib / 1024
}

/// Returns the CPU time of all threads of this process so far.
fn cpu_nanoseconds() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        stat.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default()
    };
    threads.map(of_thread).sum()
}

/// Returns the CPU seconds of this process so far (on Linux in ticks of 10 ms).
fn cpu_seconds() -> f64 {
    cpu_fields(11)
}

/// Returns the CPU seconds of the steps that have ended.
fn cpu_seconds_of_children() -> f64 {
    cpu_fields(13)
}

/// Returns the seconds in user and kernel mode, which are at this field and the next one.
fn cpu_fields(first: usize) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(first) + ticks(first + 1)) / 100.0
}
