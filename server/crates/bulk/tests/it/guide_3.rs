//! Tests of additions in version 3.0.0 of the guide: manifests in pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trefoil_bulk::{ExportLevel, FileError, GuideVersion, JobStatus, TypeAccess};

use crate::support::Setup;

const FILE_SIZE: u64 = 4_000;

fn setup(file_size: u64) -> Setup {
    Setup::with(|options| {
        options.guide = GuideVersion::V3;
        options.file_size = file_size;
    })
}

fn to(reference: &str) -> Value {
    json!({ "reference": reference })
}

/// Returns a setup with the Patients `a` to `e`, Observations of which two belong to two Patients each,
/// Provenance, and resources without a Patient.
async fn filled(file_size: u64) -> Setup {
    let setup = setup(file_size);
    setup.put("Organization", "clinic", json!({})).await;
    setup.put("Organization", "ward", json!({ "partOf": to("Organization/clinic") })).await;
    for (number, id) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        setup.put("Patient", id, json!({ "managingOrganization": to("Organization/clinic") })).await;
        // Patient `c` has more resources than fit into one file.
        for at in 0..if id == "c" { 60 } else { 3 * number } {
            let other = if at == 0 && id != "a" { json!([to("Patient/a")]) } else { json!([]) };
            let observation = json!({ "subject": to(&format!("Patient/{id}")), "performer": other });
            setup.put("Observation", &format!("{id}{at:02}"), observation).await;
        }
    }
    setup.put("Provenance", "of-both", json!({ "target": [to("Observation/b01"), to("Patient/b")] })).await;
    setup.put("Provenance", "of-one", json!({ "target": [to("Observation/d01")] })).await;
    setup
        .put("Provenance", "of-two", json!({ "target": [to("Observation/d02"), to("Observation/e02")] }))
        .await;
    setup.put("Provenance", "of-nobody", json!({ "target": [to("Organization/ward")] })).await;
    setup
}

/// Returns all pages of a manifest that are available now, without their links.
async fn pages(setup: &Setup, job: &str) -> Vec<Value> {
    let mut pages = Vec::new();
    loop {
        let number = pages.len() + 1;
        let page =
            match setup.bulk.status(job, number, "client", &TypeAccess::All, setup.now()).await.unwrap() {
                JobStatus::InProgress { manifest, .. } => manifest,
                JobStatus::Complete { manifest, .. } => Some(manifest),
                other => panic!("{other:?}"),
            };
        let Some(page) = page else { return pages };
        let mut page: Value = serde_json::from_slice(&page).unwrap();
        let link = page.as_object_mut().unwrap().remove("link");
        pages.push(page);
        match link {
            None => return pages,
            Some(link) => {
                let next = format!("https://s.example/fhir/R4/bulk/{job}?page={}", number + 1);
                assert_eq!(link, json!([{ "relation": "next", "url": next }]));
            }
        }
    }
}

/// Reads the pages of an export until it is complete. Returns the last pages, and the files that could be
/// read before the end.
async fn watched(setup: &Setup, job: &str) -> (Vec<Value>, BTreeSet<String>) {
    let (mut seen, mut read_early) = (Vec::<Value>::new(), BTreeSet::new());
    loop {
        let is_complete = matches!(
            setup.bulk.status(job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap(),
            JobStatus::Complete { .. }
        );
        let now = pages(setup, job).await;
        assert_eq!(now[..seen.len()], seen[..], "a page does not change after it was returned");
        for file in now.iter().flat_map(|page| page["output"].as_array().unwrap()) {
            let url = file["url"].as_str().unwrap();
            let lines = setup.file(&setup.bulk, url).await.lines().count();
            assert_eq!(lines as u64, file["count"].as_u64().unwrap());
            if !is_complete {
                read_early.insert(url.to_owned());
            }
        }
        seen = now;
        if is_complete {
            return (seen, read_early);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pages_are_available_early_and_never_change() {
    // The export has more files than are synced concurrently, so that some are recorded before the end.
    let setup = filled(FILE_SIZE / 5).await;
    setup.delete("Observation", "c05").await;
    let query = [("allowPartialManifests", "true"), ("_since", "2026-01-01T00:00:00Z"), ("_nonsense", "x")];
    // An export can be complete before its first page is read; the test repeats until it is not.
    let mut rounds = 0;
    let (job, seen) = loop {
        rounds += 1;
        assert!(rounds <= 20, "no page was available before the end");
        let mut request = setup.request(ExportLevel::System, &query);
        request.lenient = true;
        let job = setup.bulk.kick_off(request, setup.now()).await.unwrap();
        let (seen, read_early) = watched(&setup, &job).await;
        if !read_early.is_empty() {
            break (job, seen);
        }
    };
    assert!(seen.len() >= 2, "{seen:?}");
    let common = |page: &Value| {
        let mut page = page.clone();
        for list in ["output", "deleted"] {
            page.as_object_mut().unwrap().remove(list);
        }
        page
    };
    assert_eq!(common(&seen[0])["error"].as_array().unwrap().len(), 1);
    assert!(seen.iter().all(|page| common(page) == common(&seen[0])));
    // All pages together list the same files as a manifest without pages.
    let mut request = setup.request(ExportLevel::System, &query[1..]);
    request.lenient = true;
    let whole = setup.bulk.kick_off(request, setup.now()).await.unwrap();
    let whole = crate::support::finish(&setup.bulk, &whole, setup.now()).await;
    assert!(whole.get("link").is_none());
    let names = |list: &str, pages: &[Value]| -> Vec<String> {
        let files = pages.iter().flat_map(|page| page[list].as_array().cloned().unwrap_or_default());
        files.map(|file| file["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    for list in ["output", "deleted"] {
        assert_eq!(names(list, &seen), names(list, std::slice::from_ref(&whole)), "{list}");
    }
    assert!(setup.bulk.status(&job, seen.len() + 1, "client", &TypeAccess::All, setup.now()).await.is_err());
    assert!(setup.bulk.status(&job, 0, "client", &TypeAccess::All, setup.now()).await.is_err());
}

#[tokio::test]
async fn before_the_end_only_files_listed_on_a_page_can_be_read() {
    let setup = filled(FILE_SIZE).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    loop {
        let file = setup.bulk.file(&job, "Observation.0001.ndjson", "client", setup.now()).await;
        match setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap() {
            JobStatus::InProgress { manifest, .. } => {
                assert!(manifest.is_none() && matches!(file, Err(FileError::NotFound { .. })));
            }
            _ => break,
        }
        tokio::task::yield_now().await;
    }
    assert!(setup.bulk.file(&job, "Observation.0001.ndjson", "client", setup.now()).await.is_ok());
}
