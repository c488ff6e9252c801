//! Damages one file of the data folder of a stopped server. The server must refuse to start, report the
//! damage in a response, or return correct content only.
//!
//! The audit log is excluded, because the server does not read it. The settings and the log file belong to
//! the test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{report, size};
use crate::support::{Server, manifest_at};

#[derive(Debug, Clone)]
enum Damage {
    Cut(usize),
    Emptied,
    Deleted,
    Flipped { at: usize, bit: u8 },
    SwappedWith(PathBuf),
}

impl Damage {
    fn apply(&self, root: &Path, file: &Path) {
        let path = root.join(file);
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = fs::read(&path).unwrap();
            change(&mut bytes);
            fs::write(&path, bytes).unwrap();
        };
        match self {
            Self::Cut(length) => change(&|bytes| bytes.truncate(*length)),
            Self::Emptied => change(&|bytes| bytes.clear()),
            Self::Deleted => fs::remove_file(&path).unwrap(),
            Self::Flipped { at, bit } => change(&|bytes| bytes[*at] ^= 1 << bit),
            Self::SwappedWith(other) => {
                let (other, part) = (root.join(other), root.join("part"));
                fs::rename(&path, &part).unwrap();
                fs::rename(&other, &path).unwrap();
                fs::rename(part, other).unwrap();
            }
        }
    }
}

/// Pseudo-random numbers that are the same in each run (a linear congruential generator).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }
}

/// Returns the files of a data folder that the server reads, by their relative paths.
fn files(root: &Path) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path().strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.retain(|file| {
        let file = file.to_str().unwrap();
        !file.starts_with("audit") && !["trefoil.toml", "server.log"].contains(&file)
    });
    found.sort();
    found
}

/// Returns damages of all files, ordered such that kinds of files and of damages alternate.
fn damages(root: &Path) -> Vec<(PathBuf, Damage)> {
    let (files, mut seeded, mut all) = (files(root), Seeded(305), Vec::new());
    for file in &files {
        let bytes = fs::read(root.join(file)).unwrap();
        // The rest of a journal consists of zeros.
        let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        all.extend(
            [Damage::Deleted, Damage::Emptied, Damage::Cut(length / 2)].map(|damage| (file.clone(), damage)),
        );
        for _ in 0..2_usize.min(length) {
            let (at, bit) = (seeded.below(length), u8::try_from(seeded.below(8)).unwrap());
            all.push((file.clone(), Damage::Flipped { at, bit }));
        }
        let other = &files[seeded.below(files.len())];
        if other != file {
            all.push((file.clone(), Damage::SwappedWith(other.clone())));
        }
    }
    for last in (1..all.len()).rev() {
        all.swap(last, seeded.below(last + 1));
    }
    all
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn clear(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// Returns the responses of a server, or the request that failed with a server error.
async fn answers(server: &Server, old: &[String]) -> Result<Vec<Vec<u8>>, String> {
    // If the certificate of the development CA is damaged, no client can be created.
    let client = server.try_client().map_err(|error| error.to_string())?;
    let get = async |url: &str, token: &str, coding: &str| -> Result<Vec<u8>, String> {
        let request = client.get(url).bearer_auth(token).header("accept-encoding", coding);
        let response = request.send().await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|error| error.to_string())?;
        match status {
            200 => Ok(body.to_vec()),
            500..=599 => Err(format!("{url}: {status}")),
            // A client treats an error status as a valid response.
            _ => Ok(format!("{url}: {status}").into_bytes()),
        }
    };
    let keys = get(&format!("{}/.well-known/jwks.json", server.base()), "", "identity").await?;
    let token = server.try_backend_token("system/*.read").await?;
    let mut answers_so_far = vec![keys];
    let kick_off = client.get(format!("{}/$export", server.fhir())).bearer_auth(&token).send().await;
    let kick_off = kick_off.map_err(|error| error.to_string())?;
    let Some(status) = kick_off.headers().get("content-location") else {
        return Err(format!("$export: {}", kick_off.status()));
    };
    let status = status.to_str().unwrap().to_owned();
    let outcome = loop {
        let response =
            client.get(&status).bearer_auth(&token).send().await.map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            202 => {}
            200 => break response.json::<Value>().await.unwrap(),
            status => return Err(format!("the export failed: {status}")),
        }
    };
    for file in outcome["output"].as_array().unwrap() {
        answers_so_far.push(file["count"].to_string().into_bytes());
        answers_so_far.push(get(file["url"].as_str().unwrap(), &token, "identity").await?);
    }
    for url in old {
        answers_so_far.push(get(url, &token, "identity").await?);
        answers_so_far.push(get(url, &token, "gzip").await?);
    }
    Ok(answers_so_far)
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_to_the_folder_of_a_stopped_server_is_always_detected() {
    let mut server = Server::in_fresh_folder().with_settings("");
    server.start();
    let token = server.backend_token("system/*.read").await;
    let kick_off = server.client().get(format!("{}/$export", server.fhir())).bearer_auth(&token).send().await;
    let status = kick_off.unwrap().headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(&server.client(), &token, &status).await;
    let output = manifest["output"].as_array().unwrap();
    let old: Vec<String> = output.iter().map(|file| file["url"].as_str().unwrap().to_owned()).collect();
    let sound = answers(&server, &old).await.unwrap();
    assert!(sound.iter().all(|response| !response.is_empty()));
    server.stop();
    let saved = tempfile::tempdir().unwrap();
    copy(server.data(), saved.path());
    let damages = damages(saved.path());
    let count = size(12, 330);
    let mut results: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, damage) in damages.into_iter().take(count) {
        clear(server.data());
        copy(saved.path(), server.data());
        damage.apply(server.data(), &file);
        let result = if server.try_start(&[]).is_err() {
            assert!(server.log().contains("error: "), "{} {damage:?}: {}", file.display(), server.log());
            "refused"
        } else {
            // The test needs `demo.json`; the server reads it only at the start.
            fs::copy(saved.path().join("demo.json"), server.data().join("demo.json")).unwrap();
            let outcome = answers(&server, &old).await;
            server.kill();
            match outcome {
                Ok(current) if current == sound => "harmless",
                Ok(_) => panic!("{} {damage:?} was not detected; the log: {}", file.display(), server.log()),
                Err(_) => "reported",
            }
        };
        println!("{result}: {} {damage:?}", file.display());
        *results.entry(result).or_default() += 1;
    }
    report("single damages of a stopped server", format!("{results:?} of {count}, all detected or harmless"));
    assert!(results.contains_key("refused"), "{results:?}");
}
