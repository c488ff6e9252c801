//! Benchmark of downloads, run by `cargo xtask bench download`: downloads an export file from Trefoil and the
//! same file from a bare hyper server, alternately and with the same client.

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::spawn_blocking;
use trefoil_fixtures::population;

use crate::connection::{Connection, headers, status};
use crate::server::Server;
use crate::{Bench, identity, text};

/// Number of Patients with 75 Observations each. An Observation has about 1 KB, so the export is one file of
/// 94 MB.
const PATIENTS: u64 = 1_170;
/// Number of bytes that the bare server and the client read at once.
const PIECE: usize = 256 << 10;
const ROUNDS: usize = 7;

/// Imports the resources that are later exported and downloaded.
pub fn import(data: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let file =
        std::fs::File::create(folder.path().join("observations.ndjson")).expect("the file can be created");
    population::write("Observation", PATIENTS, &mut io::BufWriter::new(file))
        .expect("the file can be written");
    let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    import.args(["import", "--data"]).arg(data).arg(folder.path()).stdout(Stdio::null());
    assert!(import.status().expect("the import can be started").success(), "the import failed");
}

/// Exports the resources, downloads the file and prints the rates.
pub fn measure(bench: &Bench, data: &Path) {
    let token = bench.backend_token(identity::READ);
    let ask = |connection: &mut Connection, path: &str| {
        connection.call(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"))
    };
    let address = &bench.trefoil.address;
    let path_of = |url: &str| url.split_once(address).map_or(url.to_owned(), |(_, path)| path.to_owned());
    let mut connection = bench.trefoil.connect();
    let (head, _) = ask(&mut connection, "/fhir/R4/$export?_type=Observation");
    let job = headers(&head, "content-location").next().unwrap_or_else(|| panic!("{head}"));
    let manifest: Value = loop {
        let (head, body) = ask(&mut connection, &path_of(&job));
        if status(&head) == "200" {
            break serde_json::from_str(&body).expect("a manifest is JSON");
        }
        assert_eq!(status(&head), "202", "{head}{body}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let url = path_of(text(&manifest["output"][0]["url"]));
    let this = std::env::current_exe().expect("the path of the running program is known");
    let floor = Server::start(Command::new(this).arg("--file").arg(largest(data)), "listening ", || {
        bench.trefoil.connector()
    });
    let request =
        |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let (bare, length) = download(&floor.address, &request("/"));
        let (ours, ours_length) = download(address, &request(&url));
        assert_eq!(length, ours_length);
        // The first round is a warm-up and is not counted.
        if round > 0 {
            ratios.push(bare / ours);
            let rate = |seconds: f64| length as f64 / 1e6 / seconds;
            println!("{:<34} {:>7.0} MB/s, bare hyper {:>7.0} MB/s", "download", rate(ours), rate(bare));
        }
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("{:<34} {:>12} {:>10} {median:>8.2} {:>14}", "download, relative to bare hyper", "", "", "0.8");
}

fn largest(data: &Path) -> PathBuf {
    let folders =
        std::fs::read_dir(data.join("exports")).expect("the folder of the exports exists").flatten();
    let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok()).flatten().flatten();
    let file = files.max_by_key(|file| file.metadata().map_or(0, |meta| meta.len()));
    file.expect("a file was exported").path()
}

/// Downloads a file and discards its content. Returns the seconds and the number of bytes.
fn download(address: &str, request: &str) -> (f64, u64) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let started = Instant::now();
    stream.write_all(request.as_bytes()).expect("the server reads");
    let (mut head, mut piece) = (Vec::new(), vec![0; PIECE]);
    let end = loop {
        let read = stream.read(&mut piece).expect("the server answers");
        assert!(read > 0, "closed after {} bytes", head.len());
        head.extend_from_slice(&piece[..read]);
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let lines = String::from_utf8_lossy(&head[..end]).into_owned();
    assert_eq!(status(&lines), "200", "{lines}");
    let length: u64 = headers(&lines, "content-length")
        .next()
        .and_then(|text| text.parse().ok())
        .expect("the response has a Content-Length");
    let mut remaining = length - (head.len() - end) as u64;
    while remaining > 0 {
        let read = stream.read(&mut piece).expect("the server sends the rest");
        assert!(read > 0, "{remaining} bytes are missing");
        remaining -= read as u64;
    }
    (started.elapsed().as_secs_f64(), length)
}

/// The reference server, which answers every request with the same file.
pub fn floor(path: PathBuf) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime can start its threads");
    runtime.block_on(async {
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
        println!("listening {}", listener.local_addr().expect("the listener has an address"));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection is accepted");
            drop(stream.set_nodelay(true));
            let path = path.clone();
            tokio::spawn(async move {
                let response = hyper::service::service_fn(move |_| {
                    let file = std::fs::File::open(&path).expect("the file exists");
                    let length = file.metadata().expect("the length of the file is known").len();
                    let pieces = unfold(file, |mut file| async {
                        let (file, piece) = spawn_blocking(move || {
                            let mut piece = vec![0; PIECE];
                            let length = file.read(&mut piece).expect("the file can be read");
                            piece.truncate(length);
                            (file, piece)
                        })
                        .await
                        .ok()?;
                        let frame = Frame::data(Bytes::from(piece));
                        (frame.data_ref().is_some_and(|bytes| !bytes.is_empty()))
                            .then_some((Ok::<_, Infallible>(frame), file))
                    });
                    let mut response = hyper::Response::new(StreamBody::new(pieces));
                    response.headers_mut().insert(hyper::header::CONTENT_LENGTH, length.into());
                    async { Ok::<_, Infallible>(response) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                drop(connection.serve_connection(TokioIo::new(stream), response).await);
            });
        }
    });
}
