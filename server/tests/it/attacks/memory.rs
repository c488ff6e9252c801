//! Clients that make the server hold memory: uploads that stall.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::size;
use crate::support::Server;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn stalled_uploads_hold_no_more_than_the_budget() {
    let settings = "[limits]\nbody_limit_bytes = 1048576\nbody_memory_bytes = 2097152\n";
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    server.start();
    let token = server.backend_token("system/Group.cud").await;
    let head = format!(
        "POST /fhir/R4/Group HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/fhir+json\r\nContent-Length: {MIB}\r\n\r\n"
    );
    let mut stalled = Vec::new();
    for _ in 0..size(2, 40) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server may stop reading: what it does not read stays in the buffers of the machine.
        let sent = async { stream.write_all(&vec![b' '; MIB - 1]).await };
        drop(tokio::time::timeout(std::time::Duration::from_secs(1), sent).await);
        stalled.push(stream);
    }
    let group = |pad: usize| {
        let pad = " ".repeat(pad);
        format!("{}{pad}", json!({ "resourceType": "Group", "type": "person", "actual": true }))
    };
    let post = |body: String| {
        let request = server.client().post(format!("{}/Group", server.fhir())).bearer_auth(&token);
        request.header("content-type", "application/fhir+json").body(body).send()
    };
    let refused = post(group(MIB - 200)).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "5");
    // A small body needs none of the budget.
    assert_eq!(post(group(0)).await.unwrap().status(), 201);
    drop(stalled);
}
