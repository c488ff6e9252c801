//! Clients that make the server hold memory: uploads that stall, and downloads that the client does not read.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{report, size};
use crate::support::{Server, manifest_at};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn stalled_uploads_hold_at_most_the_memory_budget() {
    let settings = "[limits]\nbody_limit_bytes = 1048576\nbody_memory_bytes = 2097152\n";
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    server.start();
    let token = server.backend_token("system/Group.cud").await;
    let head = format!(
        "POST /fhir/R4/Group HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/fhir+json\r\nContent-Length: {MIB}\r\n\r\n"
    );
    let stall = async || {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server may stop reading. Bytes that it does not read stay in the socket buffers.
        let upload = async { stream.write_all(&vec![b' '; MIB - 1]).await };
        drop(tokio::time::timeout(Duration::from_secs(1), upload).await);
        stream
    };
    let mut stalled = Vec::new();
    for _ in 0..size(2, 40) {
        stalled.push(stall().await);
    }
    let group = |pad: usize| {
        let pad = " ".repeat(pad);
        format!("{}{pad}", json!({ "resourceType": "Group", "type": "person", "actual": true }))
    };
    let post = |body: String| {
        let request = server.client().post(format!("{}/Group", server.fhir())).bearer_auth(&token);
        request.header("content-type", "application/fhir+json").body(body).send()
    };
    // This request is rejected when the server has read the other uploads and the budget is used up.
    let refusal = async {
        loop {
            let response = post(group(MIB - 200)).await.unwrap();
            if response.status() != 201 {
                return response;
            }
            // An upload that was rejected because this body was faster is started again.
            for stream in &mut stalled {
                if stream.try_read(&mut [0; 64]).is_ok() {
                    *stream = stall().await;
                }
            }
        }
    };
    let refusal = tokio::time::timeout(Duration::from_secs(60), refusal)
        .await
        .expect("a request is rejected when the memory budget is used up");
    assert_eq!(refusal.status(), 503);
    assert_eq!(refusal.headers()["retry-after"], "5");
    // A small body does not count against the budget.
    assert_eq!(post(group(0)).await.unwrap().status(), 201);
    drop(stalled);
}

#[tokio::test]
async fn stalled_downloads_leave_memory_for_others() {
    trefoil_server::node::descriptors::descriptor_budget();
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    let pad = "x".repeat(1_000);
    let line = |n: usize| {
        let code = json!({ "text": pad });
        format!("{}\n", json!({ "resourceType": "Basic", "id": format!("b{n}"), "code": code }))
    };
    let data = server.data().join("many.ndjson");
    std::fs::write(&data, (0..size(5_000, 20_000)).map(line).collect::<String>()).unwrap();
    assert!(server.trefoil(&["import", data.to_str().unwrap()]).status.success());
    let token = server.backend_token("system/*.rs").await;
    let client = server.client();
    let started = client.get(format!("{}/$export?_type=Basic", server.fhir())).bearer_auth(&token).send();
    let status = started.await.unwrap().headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(&client, &token, &status).await;
    let file = manifest["output"][0]["url"].as_str().unwrap();
    let path = file.strip_prefix(&server.base()).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    let before = server.resident_mib();
    let mut unread = Vec::new();
    for n in 0..size(300, 1_000) {
        let from = std::net::SocketAddr::from(([127, 0, 1, u8::try_from(1 + n % 4).unwrap()], 0));
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(from).unwrap();
        let mut stream = socket.connect(server.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        unread.push(stream);
    }
    let response = client.get(file).bearer_auth(&token).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.bytes().await.unwrap();
    assert_eq!(body.iter().filter(|byte| **byte == b'\n').count(), size(5_000, 20_000));
    let count = unread.len();
    report(
        &format!("memory of {count} downloads that no client reads"),
        format!("{before} to {} MiB", server.resident_mib()),
    );
}
