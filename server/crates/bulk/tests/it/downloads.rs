//! Tests of the files of completed exports: ranges, gzip, and responses after a file has changed.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use trefoil_bulk::{
    AddressSignature, AddressSigning, ContentEncoding, ExportFile, ExportLevel, FileError, JobStatus,
    TypeAccess,
};

use crate::support::{RETENTION, Setup, bytes_of, finish};

/// Returns a setup with a completed export, the id of its job, and its output file of some MiB.
async fn setup_and_file() -> (Setup, String, ExportFile) {
    let setup = Setup::new();
    for number in 0..700_u32 {
        // Text with low compressibility.
        let mut state = number;
        let noise: String = (0..4_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from(b'a' + (state >> 24) as u8 % 26)
            })
            .collect();
        setup.put("Patient", &format!("p{number}"), json!({ "language": noise })).await;
    }
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    finish(&setup.bulk, &job, setup.now()).await;
    let file = setup.bulk.file(&job, "Patient.0001.ndjson", "client", setup.now()).await.unwrap();
    (setup, job, file)
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(gzip).read_to_end(&mut text).unwrap();
    text
}

#[tokio::test]
async fn ranges_and_gzip_contain_the_same_bytes() {
    let (setup, job, file) = setup_and_file().await;
    let text = bytes_of(&file, ContentEncoding::Identity, None).await;
    assert!(text.len() > 2 << 20, "the file has more than two gzip blocks: {}", text.len());
    let gzip = bytes_of(&file, ContentEncoding::Gzip, None).await;
    assert_eq!(unpacked(&gzip), text);
    for (encoding, whole) in [(ContentEncoding::Identity, &text), (ContentEncoding::Gzip, &gzip)] {
        let length = whole.len();
        for (start, end) in [(0, 1), (1, 300_000), (length / 2, length), (length - 1, length), (7, 7)] {
            let part = bytes_of(&file, encoding, Some(start as u64..end as u64)).await;
            assert!(part == whole[start..end], "{encoding:?} {start}..{end}");
        }
    }
    assert_ne!(file.etag(ContentEncoding::Identity), file.etag(ContentEncoding::Gzip));
    // Several concurrent requests for a gzip that does not exist yet.
    let again = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    finish(&setup.bulk, &again, setup.now()).await;
    let other = setup.bulk.file(&again, "Patient.0001.ndjson", "client", setup.now()).await.unwrap();
    let all = (0..8).map(|_| bytes_of(&other, ContentEncoding::Gzip, None));
    for download in futures_util::future::join_all(all).await {
        assert!(download == gzip, "equal texts have equal gzip bytes");
    }
    assert_eq!(other.etag(ContentEncoding::Gzip), file.etag(ContentEncoding::Gzip));
    setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
    assert!(!setup.folder_of(&job).exists());
}

#[tokio::test]
async fn a_damaged_file_is_rejected() {
    let (setup, job, file) = setup_and_file().await;
    let path = setup.folder_of(&job).join("1.Patient.0001.ndjson");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1_500_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let is_damaged = |result: Result<_, FileError>| matches!(result, Err(FileError::Damaged { .. }));
    assert!(
        is_damaged(file.open(ContentEncoding::Identity).await.map(drop)),
        "this process wrote different bytes"
    );
    assert!(
        is_damaged(file.open(ContentEncoding::Gzip).await.map(drop)),
        "the bytes differ from the written ones"
    );
    bytes.pop();
    std::fs::write(&path, &bytes).unwrap();
    assert!(is_damaged(file.open(ContentEncoding::Identity).await.map(drop)), "the file is too short");
    std::fs::remove_file(&path).unwrap();
    assert!(is_damaged(file.open(ContentEncoding::Identity).await.map(drop)), "the file is missing");
}

#[tokio::test]
async fn a_damaged_gzip_is_made_again() {
    let (setup, job, file) = setup_and_file().await;
    let gzip = bytes_of(&file, ContentEncoding::Gzip, None).await;
    let path = setup.folder_of(&job).join("1.Patient.0001.ndjson.gzip1");
    let sum = path.with_extension("gzip1.sum");
    assert_eq!(std::fs::read(&path).unwrap(), gzip);
    let flipped = |at: usize| {
        let mut bytes = gzip.clone();
        bytes[at] ^= 1;
        bytes
    };
    for damaged in [gzip[..gzip.len() / 2].to_vec(), flipped(0), flipped(gzip.len() / 2), Vec::new()] {
        std::fs::write(&path, damaged).unwrap();
        assert!(bytes_of(&file, ContentEncoding::Gzip, None).await == gzip);
        assert!(std::fs::read(&path).unwrap() == gzip);
    }
    for damaged in ["", "1 x00", "nonsense"] {
        std::fs::write(&sum, damaged).unwrap();
        assert!(bytes_of(&file, ContentEncoding::Gzip, None).await == gzip);
    }
    std::fs::remove_file(&sum).unwrap();
    assert!(bytes_of(&file, ContentEncoding::Gzip, None).await == gzip);
    // A process that did not write the gzip also compares it with its hash.
    std::fs::write(&path, flipped(gzip.len() / 3)).unwrap();
    let bulk = setup.reopened();
    let file = bulk.file(&job, "Patient.0001.ndjson", "client", setup.now()).await.unwrap();
    assert!(bytes_of(&file, ContentEncoding::Gzip, None).await == gzip);
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_fails_the_job_and_says_so() {
    let setup = Setup::new();
    setup.put("Patient", "p", json!({})).await;
    let folder = setup.dir.path().join("exports");
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, "not a folder").unwrap();
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    let reason = loop {
        match setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap() {
            JobStatus::Failed { by_data: false, reason } => break reason,
            JobStatus::InProgress { .. } => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    };
    assert!(reason.contains("an output file could not be written"), "{reason}");
    assert!(!reason.contains(setup.dir.path().to_str().unwrap()), "paths are for the log: {reason}");
}

#[tokio::test]
async fn polls_are_limited_if_a_limit_is_configured() {
    let setup = Setup::with(|options| options.poll_limit = Some(3));
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    let poll = || setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now());
    for _ in 0..3 {
        assert!(!matches!(poll().await.unwrap(), JobStatus::TooSoon { .. }));
    }
    setup.pass(std::time::Duration::from_secs(20));
    assert!(matches!(poll().await.unwrap(), JobStatus::TooSoon { retry_after_s: 40 }));
    setup.pass(std::time::Duration::from_secs(40));
    assert!(!matches!(poll().await.unwrap(), JobStatus::TooSoon { .. }));
}

/// Splits a signed URL into the path and the query parameters.
fn parts_of(url: &str) -> (&str, AddressSignature<'_>) {
    let (name, query) = url.rsplit('/').next().unwrap().split_once('?').unwrap();
    let (expires, signature) = query.split_once('&').unwrap();
    let expires = expires.strip_prefix("expires=").unwrap();
    (name, AddressSignature { expires, signature: signature.strip_prefix("signature=").unwrap() })
}

#[tokio::test]
async fn a_signed_url_opens_one_file_until_it_expires() {
    // Not secure, but different for each text and key.
    let signing = |key: &Arc<Mutex<&'static str>>| {
        let key = Arc::clone(key);
        let mac = move |url: &str| {
            let mut hash = DefaultHasher::new();
            (*key.lock().unwrap(), url).hash(&mut hash);
            format!("a{:016x}", hash.finish())
        };
        AddressSigning { mac: Arc::new(mac), lifetime: Duration::from_secs(300) }
    };
    let key = Arc::new(Mutex::new("the key"));
    let setup = Setup::with(|options| options.signing = Some(signing(&key)));
    setup.put("Patient", "p", json!({})).await;
    setup.put("Observation", "o", json!({})).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    assert_eq!(manifest["requiresAccessToken"], false);
    let url = |at: usize, manifest: &Value| manifest["output"][at]["url"].as_str().unwrap().to_owned();
    let (first, second) = (url(0, &manifest), url(1, &manifest));
    let ((name, signature), (other, other_signature)) = (parts_of(&first), parts_of(&second));
    let open = async |name: &str, signature: &AddressSignature<'_>| {
        let file = setup.bulk.signed_file(&job, name, signature, setup.now()).await;
        file.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(open(name, &signature).await, Ok(()));
    assert_eq!(open(other, &other_signature).await, Ok(()));
    let does_not_fit = Err("the signed URL is not valid: its signature does not match".to_owned());
    let later = (signature.expires.parse::<u64>().unwrap() + 1).to_string();
    let damaged_signature = signature.signature.replacen(|c: char| c.is_ascii_alphabetic(), "0", 1);
    for (name, expires, signature) in [
        (other, signature.expires, signature.signature),
        (name, signature.expires, other_signature.signature),
        (name, &*later, signature.signature),
        (name, signature.expires, &*damaged_signature),
        (name, signature.expires, &signature.signature[1..]),
        (name, "", ""),
    ] {
        assert_eq!(open(name, &AddressSignature { expires, signature }).await, does_not_fit);
    }
    // A new key is used immediately.
    *key.lock().unwrap() = "another key";
    assert_eq!(open(name, &signature).await, does_not_fit);
    *key.lock().unwrap() = "the key";
    // A manifest that is read again soon is unchanged; later, it contains new URLs.
    let again = async || finish(&setup.bulk, &job, setup.now()).await;
    setup.pass(Duration::from_secs(1));
    assert_eq!(url(0, &again().await), first);
    setup.pass(Duration::from_secs(149));
    assert_ne!(url(0, &again().await), first);
    setup.pass(Duration::from_secs(150));
    assert_eq!(open(name, &signature).await, Err("the signed URL is not valid: it has expired".to_owned()));
    let renewed = url(0, &again().await);
    assert_eq!(open(name, &parts_of(&renewed).1).await, Ok(()));
    // Signed URLs are returned only to clients that may read every exported type.
    let few = TypeAccess::only(["Patient"]);
    let status = setup.bulk.status(&job, 1, "client", &few, setup.now()).await.unwrap();
    assert!(matches!(status, JobStatus::Forbidden { kind } if kind == "Observation"));
    // No signed URL is valid after its job has expired.
    setup.pass(RETENTION - Duration::from_secs(310));
    let last = url(0, &again().await);
    let ends: i64 = parts_of(&last).1.expires.parse().unwrap();
    assert!(ends - setup.now().as_second() <= 10);
    setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
    let gone = setup.bulk.signed_file(&job, name, &parts_of(&last).1, setup.now()).await;
    assert!(matches!(gone, Err(FileError::NotFound { .. })));
}

#[tokio::test]
async fn signed_urls_are_rejected_if_they_are_disabled() {
    let setup = Setup::new();
    setup.put("Patient", "p", json!({})).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    finish(&setup.bulk, &job, setup.now()).await;
    let signature = AddressSignature { expires: "9999999999", signature: "" };
    let file = setup.bulk.signed_file(&job, "Patient.0001.ndjson", &signature, setup.now()).await;
    assert!(matches!(file, Err(FileError::BadAddress { .. })));
}
