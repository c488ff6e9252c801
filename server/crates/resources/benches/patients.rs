//! Benchmark of the searches that find one of a million Patients for a launch, run by `cargo xtask bench
//! patients`: by record number, names, beginnings of names and birth date, 20 on a page. `--patients=N` for
//! another number.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use jiff::Timestamp;
use store::Store;
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::{ImportOptions, Resources, Restriction};

/// Number of different given and family names. Some are thirty times as frequent as others, as in a
/// population.
const GIVEN_NAMES: u64 = 1_000;
const FAMILY_NAMES: u64 = 40_000;
/// Number of Patients on a page.
const PAGE: usize = 20;
/// Number of searches of each kind.
const ROUNDS: usize = 200;

fn main() {
    let number = std::env::args().find_map(|arg| arg.strip_prefix("--patients=")?.parse().ok());
    let patients: u64 = number.unwrap_or(1_000_000);
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let file = folder.path().join("patients.ndjson");
    write_patients(&file, patients);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let resources = runtime.block_on(async {
        let data = folder.path().join("data");
        let store = Store::open(&data).expect("the store can be opened");
        let resources = Resources::new(store);
        let new_id = || unreachable!("all imported resources have ids");
        let options = ImportOptions::default();
        let imported = resources
            .import(vec![file], options, new_id, |_| {}, Timestamp::now, std::future::pending())
            .await;
        assert_eq!(imported.expect("the store can be written").total() as u64, patients);
        resources
    });
    println!("{patients} Patients");
    println!("{:<40} {:>12} {:>12} {:>12}", "search", "median", "longest", "goal");
    let mut random = fastrand::Rng::with_seed(1);
    for (what, search) in SEARCHES {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let query = search(&mut random, patients);
            let started = Instant::now();
            let filter = (!query.is_empty()).then(|| {
                TypeFilter::read(&format!("Patient?{query}"), "", Timestamp::UNIX_EPOCH)
                    .expect("the search is valid")
            });
            let view = resources.restricted_to(Restriction::None);
            let page = runtime.block_on(view.search("Patient", filter.as_ref(), None, PAGE));
            page.expect("the store can be read");
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{what:<40} {:>12} {:>12} {:>12}", ms(median), ms(longest), "50 ms");
    }
}

fn ms(time: f64) -> String {
    format!("{time:.2} ms")
}

/// A search and its parameters for some patient.
type Search = (&'static str, fn(&mut fastrand::Rng, u64) -> String);

const SEARCHES: [Search; 7] = [
    ("all, the first page", |_, _| String::new()),
    ("record number", |random, patients| format!("identifier=MRN-{}", random.u64(..patients))),
    ("family name", |random, _| format!("name={}", family(random.u64(..)))),
    ("given and family name", |random, _| {
        format!("name={}&name={}", given(random.u64(..)), family(random.u64(..)))
    }),
    ("given name, two letters", |random, _| format!("name={}", &given(random.u64(..))[..2])),
    ("given name and birth date", |random, _| {
        format!("name={}&birthdate={}", given(random.u64(..)), birth_date(random.u64(..)))
    }),
    ("a name that no patient has", |random, _| format!("name=zzz{}", random.u64(..))),
];

fn write_patients(path: &Path, patients: u64) {
    let file = std::fs::File::create(path).expect("the file can be created");
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..patients {
        let (family, given, birth) =
            (family(random.u64(..)), given(random.u64(..)), birth_date(random.u64(..)));
        writeln!(
            out,
            r#"{{"resourceType":"Patient","id":"p{number:07}","identifier":[{{"system":"urn:mrn","value":"MRN-{number}"}}],"name":[{{"family":"{family}","given":["{given}"]}}],"birthDate":"{birth}"}}"#
        )
        .expect("the file can be written");
    }
    out.flush().expect("the file can be written");
}

/// A name, of which the first are the most frequent.
fn name(seed: u64, names: u64) -> String {
    // The square of a number between 0 and 1 is more often near 0.
    let part = (seed % 1_000_003) as f64 / 1_000_003.0;
    let number = (part * part * names as f64) as u64;
    let letters = b"aeilmnorstdu";
    let mut text = String::new();
    let mut rest = number.wrapping_mul(2_654_435_761) % (1 << 32);
    for _ in 0..7 {
        text.push(char::from(letters[(rest % 12) as usize]));
        rest /= 12;
    }
    text
}

fn family(seed: u64) -> String {
    name(seed, FAMILY_NAMES)
}

fn given(seed: u64) -> String {
    name(seed.rotate_left(20), GIVEN_NAMES)
}

fn birth_date(seed: u64) -> String {
    format!("{}-{:02}-{:02}", 1930 + seed % 95, 1 + seed / 100 % 12, 1 + seed / 2_000 % 28)
}
