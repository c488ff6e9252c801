//! Tests of the limits on running exports.

use serde_json::Value;

use crate::support::Server;

/// Adds a client and returns an access token for it.
async fn token_of_another_client(server: &Server) -> String {
    let add = ["client", "add", "other", "--auth-method", "client_secret_post", "--scope", "system/*.rs"];
    let added = String::from_utf8(server.trefoil(&add).stdout).unwrap();
    let secret = added.split("client_secret ").nth(1).unwrap().split_whitespace().next().unwrap();
    let form = [("grant_type", "client_credentials"), ("client_id", "other"), ("client_secret", secret)];
    let response = server.client().post(format!("{}/oauth2/token", server.base())).form(&form).send().await;
    let response: Value = response.unwrap().json().await.unwrap();
    response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// Returns `true` if a running export has written bytes to its files.
async fn has_bytes_under_way(client: &reqwest::Client, token: &str, status: &str) -> bool {
    loop {
        let response = client.get(status).bearer_auth(token).send().await.unwrap();
        if response.status() == 200 {
            return false;
        }
        assert_eq!(response.status(), 202);
        if !response.headers()["x-progress"].to_str().unwrap().contains(": 0 resources") {
            return true;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_running_exports_are_limited_per_client_and_in_total() {
    for (setting, is_everybodys, says) in [
        (
            "in_flight_bytes_per_client",
            false,
            "the running exports of this client have together reached the limit of 1000 bytes",
        ),
        (
            "in_flight_bytes",
            true,
            "the running exports of all clients have together reached the limit of 1000 bytes",
        ),
    ] {
        // The export takes long, because it syncs many small files.
        let settings = format!("[bulk]\nfile_size = 1024\n{setting} = 1000\n");
        let mut server = Server::in_fresh_folder().over_plain_http().with_settings(&settings);
        let file = server.data().join("patients.ndjson");
        let line = |number| format!("{{\"resourceType\":\"Patient\",\"id\":\"p{number}\"}}\n");
        std::fs::write(&file, (0..20_000).map(line).collect::<String>()).unwrap();
        assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
        server.start();
        let client = server.client();
        let (own, other) =
            (server.backend_token("system/*.read").await, token_of_another_client(&server).await);
        let kick_off = async |token: &str| {
            let request = client.get(format!("{}/$export?_type=Patient", server.fhir())).bearer_auth(token);
            request.send().await.unwrap()
        };
        let delete = async |token: &str, kick_off: &reqwest::Response| {
            let status = kick_off.headers()["content-location"].to_str().unwrap();
            let response = client.delete(status).bearer_auth(token).send().await.unwrap();
            assert_eq!(response.status(), 202);
        };
        let second = if is_everybodys { &other } else { &own };
        let mut rounds = 0;
        let (first, refused) = loop {
            rounds += 1;
            assert!(rounds <= 20, "{setting}: no export was rejected while another one was running");
            let first = kick_off(&own).await;
            assert_eq!(first.status(), 202);
            let status = first.headers()["content-location"].to_str().unwrap();
            if has_bytes_under_way(&client, &own, status).await {
                let more = kick_off(second).await;
                if more.status() != 202 {
                    break (first, more);
                }
                // The first export was complete before the second one started; the test tries again.
                delete(second, &more).await;
            }
            delete(&own, &first).await;
        };
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (429, &"10".parse().unwrap())
        );
        let outcome: Value = refused.json().await.unwrap();
        assert_eq!(outcome["issue"][0]["code"], "throttled");
        assert!(outcome.to_string().contains(says), "{outcome}");
        if !is_everybodys {
            let more = kick_off(&other).await;
            assert_eq!(more.status(), 202, "another client has its own limit");
        }
        // Deleted exports do not count towards the limit.
        delete(&own, &first).await;
        assert_eq!(kick_off(second).await.status(), 202);
    }
}
