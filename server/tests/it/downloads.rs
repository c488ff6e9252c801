//! Tests of downloads of export files with real clients: interrupted and resumed, compressed and
//! uncompressed.

use std::process::Command;

use futures_util::StreamExt as _;

use crate::support::{Server, have, installed, manifest_at, python_packages};

const PATIENTS: usize = 6_000;

/// Starts a server with an export of one large file. Returns the server, the URL of the file, a token, and
/// the content.
async fn exported() -> (Server, String, String, Vec<u8>) {
    let mut server = Server::in_fresh_folder().over_plain_http();
    let file = server.data().join("patients.ndjson");
    let line = |number: usize| {
        let noise = number.wrapping_mul(2_654_435_761) % 1_000_000_007;
        format!("{{\"resourceType\":\"Basic\",\"id\":\"b{number}\",\"language\":\"{noise:0300}\"}}\n")
    };
    std::fs::write(&file, (0..PATIENTS).map(line).collect::<String>()).unwrap();
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    server.start();
    let token = server.backend_token("system/*.read").await;
    let client = server.client();
    let request = format!("{}/$export?_type=Basic", server.fhir());
    let response = client.get(request).bearer_auth(&token).send().await.unwrap();
    let status = response.headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(&client, &token, &status).await;
    let url = manifest["output"][0]["url"].as_str().unwrap().to_owned();
    let text = client.get(&url).bearer_auth(&token).send().await.unwrap().bytes().await.unwrap();
    assert!(text.len() > 2 << 20);
    (server, url, token, text.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_downloads_resume_with_the_same_bytes() {
    let (server, url, token, text) = exported().await;
    let client = server.client();
    let mut random = fastrand::Rng::with_seed(11);
    for encoding in ["identity", "gzip"] {
        let get = || client.get(&url).bearer_auth(&token).header("accept-encoding", encoding);
        let whole = get().send().await.unwrap();
        let etag = whole.headers()["etag"].to_str().unwrap().to_owned();
        let length: usize = whole.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let whole = whole.bytes().await.unwrap();
        assert_eq!(whole.len(), length);
        let mut got = Vec::new();
        let mut cuts = 0;
        while got.len() < length {
            let range = format!("bytes={}-", got.len());
            let response = get().header("range", range).header("if-range", &etag).send().await.unwrap();
            assert_eq!(response.status(), 206);
            let expected = format!("bytes {}-{}/{length}", got.len(), length - 1);
            assert_eq!(response.headers()["content-range"].to_str().unwrap(), expected);
            // The connection ends at a random position.
            let until = got.len() + random.usize(1..length / 3);
            let mut pieces = response.bytes_stream();
            while let Some(piece) = pieces.next().await {
                got.extend_from_slice(&piece.unwrap());
                if got.len() >= until {
                    got.truncate(until);
                    cuts += 1;
                    break;
                }
            }
        }
        assert!(cuts > 2, "{cuts}");
        assert!(got == whole, "{encoding}");
        if encoding == "gzip" {
            assert!(length < text.len() / 2, "{length}");
            let mut unpacked = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&got[..]), &mut unpacked).unwrap();
            assert!(unpacked == text);
        } else {
            assert!(got == text);
        }
    }
}

/// Downloads the gzip form with Python's standard library, and checks that it has one member.
const PYTHON: &str = "
import sys, urllib.request, zlib
url, token, out = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(url, headers={'Authorization': 'Bearer ' + token, 'Accept-Encoding': 'gzip'})
answer = opener.open(request)
assert answer.headers['Content-Encoding'] == 'gzip', answer.headers
one = zlib.decompressobj(31)
text = one.decompress(answer.read())
assert one.eof and not one.unused_data, 'more than one member'
open(out, 'wb').write(text)
";

/// Streams the file with httpx, as programs do that do not hold a file in memory.
const HTTPX: &str = "
import sys, httpx
url, token, out = sys.argv[1:]
headers = {'Authorization': 'Bearer ' + token, 'Accept-Encoding': 'gzip'}
with httpx.Client(trust_env=False) as client, client.stream('GET', url, headers=headers) as answer, open(out, 'wb') as file:
    assert answer.headers['content-encoding'] == 'gzip', answer.headers
    for piece in answer.iter_bytes():
        file.write(piece)
";

const REQUESTS: &str = "
import sys, requests
url, token, out = sys.argv[1:]
session = requests.Session()
session.trust_env = False
headers = {'Authorization': 'Bearer ' + token, 'Accept-Encoding': 'gzip'}
with session.get(url, headers=headers, stream=True) as answer, open(out, 'wb') as file:
    assert answer.headers['content-encoding'] == 'gzip', answer.headers
    for piece in answer.iter_content(65536):
        file.write(piece)
";

const NODE: &str = "
const [url, token, out] = process.argv.slice(1);
const fs = await import('node:fs/promises'), zlib = await import('node:zlib'), http = await import('node:http');
const headers = { authorization: `Bearer ${token}`, 'accept-encoding': 'gzip' };
const fetched = await fetch(url, { headers });
if (fetched.headers.get('content-encoding') !== 'gzip') throw new Error('not packed');
const byFetch = Buffer.from(await fetched.arrayBuffer());
const packed = await new Promise((resolve, reject) => http.get(url, { headers }, async (answer) => {
  const pieces = [];
  for await (const piece of answer) pieces.push(piece);
  resolve(Buffer.concat(pieces));
}).on('error', reject));
if (!zlib.gunzipSync(packed).equals(byFetch)) throw new Error('fetch and zlib differ');
await fs.writeFile(out, byFetch);
";

#[tokio::test(flavor = "multi_thread")]
async fn real_clients_unpack_the_whole_file() {
    let (server, url, token, text) = exported().await;
    let out = server.data().join("unpacked");
    let unpacks = |what: &str, command: &mut Command| {
        assert!(command.env("PYTHONPATH", python_packages()).status().unwrap().success(), "{what}");
        assert!(std::fs::read(&out).unwrap() == text, "{what}");
        std::fs::remove_file(&out).unwrap();
    };
    if have("curl", "gzip by curl") {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail", "--noproxy", "*", "--compressed", "-H"]);
        unpacks("curl", curl.arg(format!("Authorization: Bearer {token}")).arg("-o").arg(&out).arg(&url));
    }
    if have("python3", "gzip by Python") {
        let python = |program| {
            let mut python = Command::new("python3");
            python.args(["-c", program, &url, &token]).arg(&out);
            python
        };
        unpacks("Python", &mut python(PYTHON));
        for (package, program) in [("httpx", HTTPX), ("requests", REQUESTS)] {
            if installed(package, &python_packages().join(package)) {
                unpacks(package, &mut python(program));
            }
        }
    }
    if have("node", "gzip by Node") {
        let mut node = Command::new("node");
        unpacks("Node", node.args(["--input-type=module", "-e", NODE, &url, &token]).arg(&out));
    }
}
