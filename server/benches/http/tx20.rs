//! `cargo xtask bench tx20`: the workloads of a public terminology benchmark, on generated data of the
//! same shapes: a release of SNOMED CT's format with 350,000 concepts, a code system like LOINC with 100,000,
//! one like RxNorm with 120,000, and 600 value sets.
//!
//! Each workload is measured with 1, 10 and 50 connections that send as fast as they can, and then at half of
//! the highest rate, where the time of an answer counts from the moment at which its request was due.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use trefoil_fixtures::polyhierarchy::Polyhierarchy;
use trefoil_fixtures::rf2_release::{self, ATTRIBUTES, MAP_SET, REFERENCE_SET};

use crate::connection::{Connector, Transport};
use crate::server::Server;

const SNOMED_CT: &str = "http://snomed.info/sct";
const LOINC: &str = "http://loinc.org";
const RXNORM: &str = "http://www.nlm.nih.gov/research/umls/rxnorm";
const LOINC_CODES: u32 = 100_000;
const RXNORM_CODES: u32 = 120_000;
const VALUE_SETS: u32 = 600;
const CLASSES: u32 = 200;

/// Numbers of connections that send as fast as they can.
const CONNECTIONS: [usize; 3] = [1, 10, 50];
/// Number of different requests of a workload.
const REQUESTS: usize = 2_000;
/// Duration of one measurement.
const DURATION: Duration = Duration::from_millis(1_500);

/// Runs the benchmark. `--concepts=N` is for a smaller release.
pub(crate) fn run(args: &[String]) {
    let concepts =
        args.iter().find_map(|arg| arg.strip_prefix("--concepts=")?.parse().ok()).unwrap_or(350_000);
    let wanted = args.iter().find_map(|arg| arg.strip_prefix("--only="));
    let data = tempfile::tempdir().expect("a temporary folder can be created");
    let hierarchy = Polyhierarchy::new(1, concepts);
    import(&hierarchy, data.path());
    // Requests have no token, as those of the benchmark.
    let config = data.path().join("trefoil.toml");
    std::fs::write(&config, "[terminology]\nanonymous = true\n").expect("the configuration can be written");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve
        .args(["serve", "--demo", "--insecure-http", "--listen", "127.0.0.1:0", "--config"])
        .arg(config)
        .arg("--data")
        .arg(data.path());
    let log = File::create(data.path().join("server.log")).expect("the log can be created");
    let connector = || Arc::new(Connector::new(Transport::Plain, data.path()));
    let trefoil = Arc::new(Server::start(serve.stderr(log), "ready http://", connector));
    let mut floor = Command::new(std::env::current_exe().expect("the path of the running program is known"));
    floor.arg("--floor").arg(data.path());
    let floor = Server::start(&mut floor, "listening ", || trefoil.connector());
    println!(
        "{concepts} concepts; requests a second and CPU µs a request; p99 in ms at half of the highest rate"
    );
    println!(
        "{:<44} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "work", "1", "10", "50", "CPU, 1", "CPU, 10", "CPU, 50", "p99"
    );
    report("reference: bare hyper", &floor, &["GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()]);
    for (name, make) in workloads() {
        if wanted.is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let mut random = Rng::with_seed(7);
        let requests: Vec<String> = (0..REQUESTS).map(|_| make(&hierarchy, &mut random)).collect();
        let mut connection = trefoil.connect();
        let (head, body) = connection.call(&requests[0]);
        assert!(head.starts_with("HTTP/1.1 200"), "{name}: {}\n{head}{body}", requests[0]);
        if wanted.is_some() {
            println!("{}\n{}", requests[0], &body[..body.len().min(2_000)]);
        }
        report(name, &trefoil, &requests);
    }
}

/// Measures a workload and prints its row.
fn report(name: &str, server: &Server, requests: &[String]) {
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for count in CONNECTIONS {
        let mut rate = 0.0;
        let us = server.cpu_us_of(|| rate = rate_of(server, count, requests));
        rates.push(rate);
        costs.push(us / (rate * DURATION.as_secs_f64()));
    }
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let p99 = p99_ms(server, requests, highest / 2.0);
    let [r1, r10, r50] = [0, 1, 2].map(|at| rates[at]);
    let [c1, c10, c50] = [0, 1, 2].map(|at| costs[at]);
    println!("{name:<44} {r1:>9.0} {r10:>9.0} {r50:>9.0} {c1:>8.1} {c10:>8.1} {c50:>8.1} {p99:>8.2}");
}

/// Sends requests as fast as this number of connections can, and returns the answers a second.
fn rate_of(server: &Server, connections: usize, requests: &[String]) -> f64 {
    let mut connections = server.connections(connections);
    let (answers, lanes) = (AtomicUsize::new(0), connections.len());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (lane, connection) in connections.iter_mut().enumerate() {
            let answers = &answers;
            scope.spawn(move || {
                let mut at = lane;
                while started.elapsed() < DURATION {
                    server.ask(connection, &requests[at % requests.len()]);
                    at += lanes;
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    answers.into_inner() as f64 / started.elapsed().as_secs_f64()
}

/// Sends requests at a rate, and returns the time in milliseconds within which 99 % are answered.
fn p99_ms(server: &Server, requests: &[String], rate: f64) -> f64 {
    const LANES: usize = 50;
    let mut connections = server.connections(LANES);
    let started = Instant::now() + Duration::from_millis(50);
    let each = (rate * DURATION.as_secs_f64() / LANES as f64).ceil().max(1.0) as usize;
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let lanes = connections.iter_mut().enumerate().map(|(lane, connection)| {
            scope.spawn(move || {
                let mut times = Vec::with_capacity(each);
                for turn in 0..each {
                    let number = turn * LANES + lane;
                    let due = started + Duration::from_secs_f64(number as f64 / rate);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    server.ask(connection, &requests[number % requests.len()]);
                    times.push(due.elapsed());
                }
                times
            })
        });
        let lanes: Vec<_> = lanes.collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane does not fail")).collect()
    });
    times.sort_unstable();
    times[times.len() * 99 / 100].as_secs_f64() * 1e3
}

type MakeRequest = Box<dyn Fn(&Polyhierarchy, &mut Rng) -> String>;

/// The workloads, with the function that makes one of their requests.
fn workloads() -> Vec<(&'static str, MakeRequest)> {
    fn of(
        name: &'static str,
        make: impl Fn(&Polyhierarchy, &mut Rng) -> String + 'static,
    ) -> (&'static str, MakeRequest) {
        (name, Box::new(make))
    }
    vec![
        of("search: CodeSystem?url", |_, random| {
            get("CodeSystem", &[("url", random.choice([LOINC, RXNORM]).unwrap_or(LOINC))])
        }),
        of("search: ValueSet?url", |_, random| {
            get("ValueSet", &[("url", &value_set_url(random.u32(0..VALUE_SETS)))])
        }),
        of("$lookup: SNOMED CT", |hierarchy, random| {
            get("CodeSystem/$lookup", &[("system", SNOMED_CT), ("code", &concept(hierarchy, random))])
        }),
        of("$lookup: SNOMED CT, en-GB, three properties", |hierarchy, random| {
            let code = concept(hierarchy, random);
            get(
                "CodeSystem/$lookup",
                &[
                    ("system", SNOMED_CT),
                    ("code", &code),
                    ("displayLanguage", "en-GB"),
                    ("property", "parent"),
                    ("property", "child"),
                    ("property", ATTRIBUTES[0]),
                ],
            )
        }),
        of("$lookup: SNOMED CT, POST coding", |hierarchy, random| {
            let coding = json!({ "system": SNOMED_CT, "code": concept(hierarchy, random) });
            post("CodeSystem/$lookup", json!([{ "name": "coding", "valueCoding": coding }]))
        }),
        of("$lookup: LOINC", |_, random| {
            let code = loinc_code(random.u32(0..LOINC_CODES));
            get("CodeSystem/$lookup", &[("system", LOINC), ("code", &code)])
        }),
        of("$lookup: RxNorm", |_, random| {
            let code = rxnorm_code(random.u32(0..RXNORM_CODES));
            get("CodeSystem/$lookup", &[("system", RXNORM), ("code", &code)])
        }),
        of("$validate-code: value set of listed codes", |_, random| {
            let number = random.u32(0..VALUE_SETS);
            let code = rxnorm_code(random.u32(0..RXNORM_CODES));
            get(
                "ValueSet/$validate-code",
                &[("url", &value_set_url(number)), ("system", RXNORM), ("code", &code)],
            )
        }),
        of("$validate-code: descendants in SNOMED CT", |hierarchy, random| {
            let url = implicit(&format!("isa/{}", broad(hierarchy, random)));
            get(
                "ValueSet/$validate-code",
                &[("url", &url), ("system", SNOMED_CT), ("code", &concept(hierarchy, random))],
            )
        }),
        of("$validate-code: code and display of LOINC", |_, random| {
            let number = random.u32(0..LOINC_CODES);
            let display = loinc_display(number);
            get(
                "CodeSystem/$validate-code",
                &[("url", LOINC), ("code", &loinc_code(number)), ("display", &display)],
            )
        }),
        of("$expand: a listed value set", |_, random| {
            get("ValueSet/$expand", &[("url", &value_set_url(random.u32(0..VALUE_SETS)))])
        }),
        of("$expand: descendants, first 100", |hierarchy, random| {
            let url = implicit(&format!("isa/{}", broad(hierarchy, random)));
            get("ValueSet/$expand", &[("url", &url), ("count", "100")])
        }),
        of("$expand: all of SNOMED CT, one word, 20", |_, random| {
            expand_text(&implicit(""), &rf2_release::word(random.u32(0..5_000)))
        }),
        of("$expand: all of SNOMED CT, begins of two words", |hierarchy, random| {
            let term = rf2_release::term(random.u32(1..hierarchy.len()));
            let words: Vec<&str> = term.split(' ').map(|word| &word[..word.len().min(4)]).take(2).collect();
            expand_text(&implicit(""), &words.join(" "))
        }),
        of("$expand: descendants, one word, 20", |hierarchy, random| {
            let url = implicit(&format!("isa/{}", broad(hierarchy, random)));
            expand_text(&url, &rf2_release::word(random.u32(0..500)))
        }),
        of("$expand: ECL with a refinement, 100", |hierarchy, random| {
            let (focus, value) = (broad(hierarchy, random), broad(hierarchy, random));
            let url = implicit(&format!("ecl/< {focus} : {} = << {value}", ATTRIBUTES[0]));
            get("ValueSet/$expand", &[("url", &url), ("count", "100")])
        }),
        of("$expand: ECL with AND, MINUS, a reference set", |hierarchy, random| {
            let (focus, without) = (broad(hierarchy, random), broad(hierarchy, random));
            let url = implicit(&format!("ecl/(< {focus} MINUS << {without}) AND ^ {REFERENCE_SET}"));
            get("ValueSet/$expand", &[("url", &url), ("count", "100")])
        }),
        of("$expand: three filters of LOINC", |_, random| {
            let filter =
                |property: &str, value: String| json!({ "property": property, "op": "=", "value": value });
            let filters = json!([
                filter("CLASS", format!("CLASS-{}", random.u32(0..CLASSES))),
                filter("STATUS", "ACTIVE".to_owned()),
                filter("SCALE_TYP", "Qn".to_owned())
            ]);
            let set = json!({ "resourceType": "ValueSet", "status": "active", "compose": {
                "include": [{ "system": LOINC, "filter": filters }] } });
            post("ValueSet/$expand", json!([{ "name": "valueSet", "resource": set }]))
        }),
        of("$subsumes", |hierarchy, random| {
            let (a, b) = (broad(hierarchy, random), concept(hierarchy, random));
            get("CodeSystem/$subsumes", &[("system", SNOMED_CT), ("codeA", &a), ("codeB", &b)])
        }),
        of("$translate: a map of SNOMED CT", |hierarchy, random| {
            let url = format!("{SNOMED_CT}?fhir_cm={MAP_SET}");
            get(
                "ConceptMap/$translate",
                &[("url", &url), ("system", SNOMED_CT), ("code", &concept(hierarchy, random))],
            )
        }),
        of("$translate: a ConceptMap", |_, random| {
            let code = rxnorm_code(random.u32(0..RXNORM_CODES));
            get(
                "ConceptMap/$translate",
                &[("url", "http://tx20.example/map"), ("system", RXNORM), ("code", &code)],
            )
        }),
    ]
}

fn get(path: &str, query: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("GET /fhir/R4/{path}?{query} HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn post(path: &str, parameters: Value) -> String {
    let body = json!({ "resourceType": "Parameters", "parameter": parameters }).to_string();
    let length = body.len();
    format!(
        "POST /fhir/R4/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/fhir+json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn expand_text(url: &str, text: &str) -> String {
    get("ValueSet/$expand", &[("url", url), ("filter", text), ("count", "20")])
}

/// The code of any concept.
fn concept(hierarchy: &Polyhierarchy, random: &mut Rng) -> String {
    rf2_release::code(random.u32(1..hierarchy.len()))
}

/// The code of a concept with many descendants.
fn broad(hierarchy: &Polyhierarchy, random: &mut Rng) -> String {
    rf2_release::code(random.u32(1..hierarchy.len() / 400))
}

fn implicit(selector: &str) -> String {
    match selector {
        "" => format!("{SNOMED_CT}?fhir_vs"),
        selector => format!("{SNOMED_CT}?fhir_vs={selector}"),
    }
}

fn value_set_url(number: u32) -> String {
    format!("http://tx20.example/ValueSet/{number}")
}

fn loinc_code(number: u32) -> String {
    format!("{}-{}", number + 1_000, number % 10)
}

fn loinc_display(number: u32) -> String {
    format!(
        "{} [{}] in {}",
        rf2_release::term(number),
        rf2_release::word(number % 300),
        rf2_release::word(number % 50)
    )
}

fn rxnorm_code(number: u32) -> String {
    (number * 17 + 100_003).to_string()
}

/// Generates the data, and imports them into a data folder.
fn import(hierarchy: &Polyhierarchy, data: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    rf2_release::write(hierarchy, &folder.path().join("rf2")).expect("the release can be written");
    let resources = folder.path().join("resources");
    std::fs::create_dir(&resources).expect("the new folder can be created");
    let columns = "CLASS,STATUS,SCALE_TYP,COMPONENT,SYSTEM";
    let (loinc, rxnorm) = (folder.path().join("tests.csv"), folder.path().join("drugs.csv"));
    write_csv(&loinc, LOINC, columns, (0..LOINC_CODES).map(loinc_row));
    write_csv(&rxnorm, RXNORM, "TTY", (0..RXNORM_CODES).map(rxnorm_row));
    std::fs::write(resources.join("map.json"), concept_map().to_string()).expect("the file can be written");
    let sets = File::create(resources.join("sets.ndjson")).expect("the file can be created");
    let mut sets = BufWriter::new(sets);
    for number in 0..VALUE_SETS {
        writeln!(sets, "{}", value_set(number)).expect("the file can be written");
    }
    sets.flush().expect("the file can be written");
    let root = std::fs::read_dir(folder.path().join("rf2")).expect("the release is there").next();
    let release = root.expect("the release is there").expect("the release can be read").path();
    for source in [release, loinc, rxnorm, resources] {
        let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
        let imported = import.args(["import", "--data"]).arg(data).arg(source).stdout(Stdio::null()).status();
        assert!(imported.expect("the import can be started").success(), "the import failed");
    }
}

/// Writes a code system as CSV, which is imported as a release: its resource has no concepts.
fn write_csv(path: &Path, url: &str, columns: &str, rows: impl Iterator<Item = String>) {
    let mut file = BufWriter::new(File::create(path).expect("the file can be created"));
    let head = format!("# url: {url}\n# version: 2026\n# name: TX20\ncode,display,{columns}");
    for line in std::iter::once(head).chain(rows) {
        writeln!(file, "{line}").expect("the file can be written");
    }
    file.flush().expect("the file can be written");
}

fn loinc_row(number: u32) -> String {
    let state = if number.is_multiple_of(9) { "DEPRECATED" } else { "ACTIVE" };
    let scale = ["Qn", "Ord", "Nom", "Nar"][number as usize % 4];
    let (code, display, class) = (loinc_code(number), loinc_display(number), number % CLASSES);
    let (component, system) = (rf2_release::term(number), rf2_release::word(number % 50));
    format!("{code},{display},CLASS-{class},{state},{scale},{component},{system}")
}

fn rxnorm_row(number: u32) -> String {
    let kind = ["SCD", "SBD", "IN", "BN"][number as usize % 4];
    format!(
        "{},{} {} MG Oral Tablet,{kind}",
        rxnorm_code(number),
        rf2_release::term(number),
        number % 500 + 1
    )
}

fn value_set(number: u32) -> Value {
    let concept = |at: u32| json!({ "code": rxnorm_code((number * 200 + at * 7) % RXNORM_CODES) });
    let listed: Vec<_> = (0..100).map(concept).collect();
    json!({ "resourceType": "ValueSet", "id": format!("tx20-{number}"), "url": value_set_url(number),
        "version": "1", "status": "active", "compose": { "include": [{ "system": RXNORM, "concept": listed }] } })
}

fn concept_map() -> Value {
    let element = |number: u32| json!({ "code": rxnorm_code(number), "target": [{ "code": loinc_code(number / 2), "equivalence": "equivalent" }] });
    let elements: Vec<_> = (0..20_000).map(element).collect();
    json!({ "resourceType": "ConceptMap", "id": "tx20-map", "url": "http://tx20.example/map", "status": "active",
        "group": [{ "source": RXNORM, "target": LOINC, "element": elements }] })
}
