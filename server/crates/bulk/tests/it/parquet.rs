//! Tests of exports as Parquet, read back with the Parquet library.

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Value, json};
use trefoil_bulk::{Bulk, ContentEncoding, ExportLevel, GuideVersion};

use crate::support::{World, bytes_of, finish};

const PARQUET: (&str, &str) = ("_outputFormat", "application/vnd.apache.parquet");

async fn filled() -> World {
    let world = World::with(|options| {
        options.file_size = 12 << 20;
        options.guide = GuideVersion::V3;
    });
    for number in 0..300 {
        // Some resources are so long that they need a row group for themselves.
        let long = "x".repeat(if number % 100 == 7 { 5 << 20 } else { 10 * number });
        world.put("Patient", &format!("p{number:03}"), json!({ "language": long })).await;
    }
    for number in 0..10 {
        let subject = json!({ "reference": format!("Patient/p{number:03}") });
        world.put("Observation", &format!("o{number}"), json!({ "subject": subject, "note": "\"ü\"" })).await;
    }
    world
}

async fn bytes(world: &World, bulk: &Bulk, entry: &Value) -> Vec<u8> {
    let url = entry["url"].as_str().unwrap();
    let (job, name) = url.strip_prefix("https://s.example/fhir/R4/bulk/").unwrap().split_once('/').unwrap();
    assert!(name.ends_with(".parquet"), "{name}");
    let file = bulk.file(job, name, "client", world.now()).await.unwrap();
    assert_eq!(file.format().media_type(), PARQUET.1);
    bytes_of(&file, ContentEncoding::Identity, None).await
}

/// Returns the names and bytes of all files of a manifest.
async fn files(world: &World, bulk: &Bulk, manifest: &Value) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in ["output", "deleted", "error"].iter().flat_map(|list| manifest[list].as_array()).flatten() {
        let name = entry["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        files.push((name, bytes(world, bulk, entry).await));
    }
    files
}

/// Returns the rows of a file, and its number of row groups.
fn rows(bytes: Vec<u8>) -> (Vec<Row>, usize) {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let groups = reader.num_row_groups();
    (reader.get_row_iter(None).unwrap().map(Result::unwrap).collect(), groups)
}

/// Returns the columns of a row as text, and its resource.
fn read(row: &Row) -> (Vec<Option<String>>, Value) {
    let column = |(name, field): (&String, &Field)| match field {
        Field::Null => None,
        Field::Str(text) => Some(text.clone()),
        Field::TimestampMillis(at) => Some(at.to_string()),
        other => panic!("{name}: {other:?}"),
    };
    let mut columns: Vec<_> = row.get_column_iter().map(column).collect();
    let json = columns.pop().flatten().unwrap();
    (columns, serde_json::from_str(&json).unwrap())
}

#[tokio::test]
async fn rows_contain_the_lines_of_ndjson() {
    let world = filled().await;
    world.delete("Observation", "o3").await;
    let query = [("_since", "2026-01-01T00:00:00Z"), ("_nonsense", "x")];
    let export = async |query: &[(&str, &str)]| {
        let mut request = world.request(ExportLevel::System, query);
        request.lenient = true;
        let job = world.bulk.kick_off(request, world.now()).await.unwrap();
        finish(&world.bulk, &job, world.now()).await
    };
    let plain = export(&query).await;
    let packed = export(&[query[0], query[1], PARQUET]).await;
    let mut groups = 0;
    for list in ["output", "deleted", "error"] {
        let (plain, packed) = (plain[list].as_array().unwrap(), packed[list].as_array().unwrap());
        assert_eq!(plain.len(), packed.len(), "both formats have the same number of files");
        for (plain, packed) in plain.iter().zip(packed) {
            assert_eq!((&plain["type"], &plain["count"]), (&packed["type"], &packed["count"]));
            let text = world.file(&world.bulk, plain["url"].as_str().unwrap()).await;
            let (rows, of_file) = rows(bytes(&world, &world.bulk, packed).await);
            groups = groups.max(of_file);
            assert_eq!(rows.len(), text.lines().count());
            for (row, line) in rows.iter().zip(text.lines()) {
                let (columns, resource) = read(row);
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!(resource, line);
                let member = |path: &str| line.pointer(path).and_then(Value::as_str).map(str::to_owned);
                let time = member("/meta/lastUpdated").map(|text| fhir::instant::parse(&text).unwrap());
                let time = time.map(|time| time.as_millisecond().to_string());
                let expected = [member("/resourceType"), member("/id"), member("/meta/versionId"), time];
                assert_eq!(columns, expected);
            }
        }
    }
    assert!(groups > 1, "a file has several row groups");
    assert_eq!(packed["deleted"].as_array().unwrap().len(), 1);
}

#[test]
fn a_killed_export_resumes_with_the_same_bytes() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let world = first.block_on(filled());
    for query in [&[PARQUET][..], &[PARQUET, ("organizeOutputBy", "Patient")]] {
        let undisturbed = first.block_on(async {
            let manifest = world.export(ExportLevel::System, query).await;
            files(&world, &world.bulk, &manifest).await
        });
        assert!(undisturbed.len() > 1);
        for steps in [0, 3, 10, 30] {
            let process = runtime();
            let job = process.block_on(async {
                let bulk = world.reopened();
                let job =
                    bulk.kick_off(world.request(ExportLevel::System, query), world.now()).await.unwrap();
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
                job
            });
            process.shutdown_timeout(std::time::Duration::from_secs(60));
            let resumed = runtime().block_on(async {
                let bulk = world.reopened();
                bulk.resume().await.unwrap();
                let manifest = finish(&bulk, &job, world.now()).await;
                files(&world, &bulk, &manifest).await
            });
            assert!(undisturbed == resumed, "after {steps} steps");
        }
    }
}
