//! Tests of the command line: exit codes, messages, and administration of a stopped and a running server.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::documentation::{MayLack, check_command, shell_commands};
use crate::support::{Server, TREFOIL, assertion, have};

#[track_caller]
fn check(output: &std::process::Output, code: i32, says: &str) {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(says), "{text:?} does not say {says:?}");
}

fn add_user(server: &Server, name: &str, password: &str) -> std::process::Output {
    server.add_user(&[name], password)
}

#[test]
fn the_same_commands_work_stopped_and_running() {
    let mut server = Server::in_fresh_folder();
    check(&add_user(&server, "before", "a long password\n"), 0, "added user before");
    check(&add_user(&server, "before", "a long password\n"), 1, "a user 'before' exists already");
    check(&add_user(&server, "weak", "short\n"), 1, "the password has 5 characters and must have at least 8");
    check(&add_user(&server, "none", ""), 1, "no password was given");
    server.start();
    check(&add_user(&server, "during", "a long password\n"), 0, "added user during");
    let list = server.trefoil(&["user", "list"]);
    check(&list, 0, "before");
    check(&list, 0, "during");
    check(&server.trefoil(&["user", "disable", "nobody"]), 1, "user 'nobody' does not exist");
    let add = ["client", "add", "web", "--redirect-uri", "https://app.example/cb", "--scope", "openid email"];
    check(&server.trefoil(&add), 0, "added client web");
    check(&server.trefoil(&add), 1, "a client 'web' exists already");
    check(&server.trefoil(&["client", "show", "web"]), 0, "\"pkce_required\": true");
    check(
        &server.trefoil(&["client", "add", "bad", "--redirect-uri", "http://app.example/cb"]),
        1,
        "is not HTTPS",
    );
    check(
        &server.trefoil(&["client", "add", "office", "--auth-method", "client_secret_basic"]),
        0,
        "client_secret ",
    );
    const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";
    let add = ["client", "add", "television", "--grant-type", DEVICE, "--grant-type", "refresh_token"];
    check(&server.trefoil(&add), 0, "added client television");
    check(&server.trefoil(&["client", "show", "television"]), 0, DEVICE);
    check(&server.trefoil(&["client", "delete", "office"]), 0, "deleted client office");
    assert_eq!(server.stop(), Some(0));
    assert!(!server.data().join("endpoint.json").exists(), "the stopped server has removed endpoint.json");
    check(&server.trefoil(&["user", "list"]), 0, "during");
}

#[test]
fn lists_and_records_are_json_on_request() {
    let server = Server::in_fresh_folder();
    let json = |args: &[&str]| -> Vec<serde_json::Value> {
        let output = server.trefoil(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    };
    check(&add_user(&server, "ada", "a long enough password"), 0, "added user ada");
    assert_eq!(json(&["user", "list"])[0]["username"], "ada");
    let user = &json(&["user", "show", "ada"])[0];
    assert_eq!((&user["password"], &user["recovery_codes"]), (&true.into(), &0.into()), "{user}");
    let added = json(&["client", "add", "office", "--auth-method", "client_secret_basic"]);
    assert!(added.iter().any(|value| value["client_secret"].is_string()), "{added:?}");
    assert_eq!(json(&["client", "list"])[0]["client_id"], "office");
    assert_eq!(json(&["client", "show", "office"])[0]["secrets"], 1);
    assert!(json(&["keys", "list"]).iter().all(|key| key["kid"].is_string() && key["stage"].is_string()));
    assert_eq!(json(&["release", "list"]), [] as [serde_json::Value; 0]);
    assert_eq!(
        json(&["client", "delete", "office"])[0]["message"].as_str().unwrap().split(';').next(),
        Some("deleted client office")
    );
}

#[test]
fn the_status_names_the_facts_of_a_stopped_and_a_running_server() {
    let mut server = Server::in_fresh_folder();
    check(&add_user(&server, "ada", "a long enough password"), 0, "added user ada");
    let status = |server: &Server| -> serde_json::Value {
        let output = server.trefoil(&["status", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let stopped = status(&server);
    assert_eq!(
        (&stopped["is_running"], &stopped["users"], &stopped["store"]["kind"]),
        (&false.into(), &1.into(), &"local".into())
    );
    server.start();
    let wrong = ["--silent", "--insecure", "-u", "nobody:wrong", "-d", "grant_type=client_credentials"];
    let curl =
        Command::new("curl").args(wrong).arg(format!("{}/oauth2/token", server.base())).output().unwrap();
    assert!(curl.status.success());
    let running = status(&server);
    assert_eq!((&running["is_running"], &running["base_url"]), (&true.into(), &server.base().into()));
    assert!(running["store"]["sequence"].as_u64() > stopped["store"]["sequence"].as_u64(), "{running}");
    assert!(
        running["store"]["data_bytes"].as_u64() > Some(1_000) && running["certificate_until"].is_string()
    );
    assert_eq!(running["refusals"][0], serde_json::json!(["client", "invalid_client", 1]));
    assert_eq!(running["faults"], serde_json::json!([]));
    check(&server.trefoil(&["status"]), 0, "running at https://localhost:");
    check(&Server::in_fresh_folder().trefoil(&["status"]), 1, "contains no store");
}

#[test]
fn completions_and_man_pages_name_each_command() {
    let server = Server::in_fresh_folder();
    let folder = server.data().join("pages");
    let pages = Command::new(TREFOIL).args(["man", "--out"]).arg(&folder).output().unwrap();
    check(&pages, 0, "");
    let page = std::fs::read_to_string(folder.join("trefoil-user-set-password.1")).unwrap();
    assert!(page.contains("keep") && page.contains("password"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let script = Command::new(TREFOIL).args(["completions", shell]).output().unwrap();
        check(&script, 0, "set-password");
    }
}

#[test]
fn users_and_clients_are_changed_and_defaults_restored() {
    let server = Server::in_fresh_folder();
    check(&add_user(&server, "ada", "a long enough password"), 0, "added user ada");
    let change = ["user", "change", "ada", "--email", "ada@mail.example", "--email-verified"];
    check(&server.trefoil(&[&change[..], &["--fhir-user", "Patient/p1"]].concat()), 0, "changed user ada");
    let show_user = server.trefoil(&["user", "show", "ada"]);
    check(&show_user, 0, "email               ada@mail.example");
    check(&show_user, 0, "email verified      yes");
    check(&server.trefoil(&["user", "change", "ada", "--unset", "fhir-user"]), 0, "changed user ada");
    check(&server.trefoil(&["user", "show", "ada"]), 0, "fhir user           -");
    check(&server.trefoil(&["user", "change", "ada", "--fhir-user", "nonsense"]), 1, "such as Patient/p1");
    check(&server.trefoil(&["user", "change", "ada", "--unset", "colour"]), 2, "there is no such flag");
    check(&server.trefoil(&["user", "change", "nobody", "--name", "N"]), 1, "does not exist");

    let add = ["client", "add", "web", "--redirect-uri", "https://app.example/cb", "--first-party"];
    check(&server.trefoil(&add), 0, "added client web");
    let change = ["client", "change", "web", "--scope", "openid email", "--unset", "first-party"];
    check(&server.trefoil(&change), 0, "changed client web");
    let show_client = server.trefoil(&["client", "show", "web"]);
    check(&show_client, 0, "\"scope\": \"openid email\"");
    check(&show_client, 0, "\"first_party\": false");
    check(&show_client, 0, "https://app.example/cb");
    let with_secret = ["client", "change", "web", "--auth-method", "client_secret_basic"];
    check(&server.trefoil(&with_secret), 0, "client_secret ");
    check(&server.trefoil(&["client", "rotate-secret", "web", "--overlap-s", "60"]), 0, "client_secret ");
    check(
        &server.trefoil(&["client", "change", "web", "--redirect-uri", "http://app.example"]),
        1,
        "is not HTTPS",
    );
    check(&server.trefoil(&["client", "change", "nobody", "--name", "N"]), 1, "does not exist");
}

#[test]
fn files_in_a_readable_folder_are_private() {
    let server = Server::in_fresh_folder();
    std::fs::set_permissions(server.data(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let added = ["client", "add", "web", "--redirect-uri", "https://app.example/cb"];
    check(&server.trefoil(&added), 0, "created a store");
    for inner in ["store", "exports", "tls"] {
        let mode = std::fs::metadata(server.data().join(inner)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{inner}");
    }
}

#[test]
fn each_error_has_its_exit_code() {
    let server = Server::in_fresh_folder();
    check(&server.trefoil(&["serve", "--no-such-flag"]), 2, "--no-such-flag");
    check(&server.trefoil(&["serve", "--demo", "--listen", "0.0.0.0:0"]), 3, "--demo is refused");
    check(
        &server.trefoil(&["serve", "--insecure-http", "--listen", "0.0.0.0:0"]),
        3,
        "loopback addresses only",
    );
    check(&server.trefoil(&["serve", "--store", "oracle"]), 3, "use memory, file or a URL");
    let settings = server.data().join("trefoil.toml");
    std::fs::write(&settings, "[server]\nlissten = \"x\"\n").unwrap();
    check(&server.trefoil(&["serve", "--config", settings.to_str().unwrap()]), 3, "line 2");
    check(&server.trefoil(&["import", "/no/such/file"]), 1, "path /no/such/file does not exist");
}

#[test]
fn an_import_reports_invalid_lines_with_their_position() {
    let server = Server::in_fresh_folder();
    let file = server.data().join("mixed.ndjson");
    std::fs::write(
        &file,
        "{\"resourceType\":\"Patient\",\"id\":\"a\"}\n{broken\n\n{\"resourceType\":\"Nonsense\",\"id\":\"b\"}\n{\"resourceType\":\"Patient\",\"id\":\"c\"}\n",
    )
    .unwrap();
    let output = server.trefoil(&["import", file.to_str().unwrap()]);
    check(&output, 1, "mixed.ndjson:2:");
    check(&output, 1, "mixed.ndjson:4: 'Nonsense' is not a resource type");
    check(&output, 1, "2 inputs could not be imported");
    check(&output, 1, "2 new");
}

#[test]
fn an_operator_export_is_the_same_for_a_stopped_and_a_running_server() {
    // The first start adds the demo project.
    let mut server = Server::demo();
    server.stop();
    let file = server.data().join("some.ndjson");
    let text = ["p", "q"].map(|id| {
        let patient = format!(r#"{{"resourceType":"Patient","id":"{id}"}}"#);
        let condition = format!(
            r#"{{"resourceType":"Condition","id":"c-{id}","subject":{{"reference":"Patient/{id}"}}}}"#
        );
        format!("{patient}\n{condition}\n")
    });
    let group = r#"{"resourceType":"Group","id":"g","member":[{"entity":{"reference":"Patient/p"}}]}"#;
    std::fs::write(&file, format!("{}{group}\n", text.concat())).unwrap();
    check(&server.trefoil(&["import", file.to_str().unwrap()]), 0, "5  from 1 file");
    let data = server.data().to_owned();
    let out = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let (stopped, running, of_group) = (out("stopped"), out("running"), out("of-group"));
    check(&server.trefoil(&["export", "--out", &stopped]), 0, "total");
    check(&server.trefoil(&["export", "--out", &stopped]), 1, "is not empty");
    server.start();
    check(&server.trefoil(&["export", "--out", &running]), 0, "total");
    let read = |folder: &str, name: &str| std::fs::read(std::path::Path::new(folder).join(name)).unwrap();
    for name in ["Patient.ndjson", "Condition.ndjson", "Group.ndjson"] {
        assert_eq!(read(&stopped, name), read(&running, name), "{name}");
    }
    let args = ["export", "--out", &of_group, "--group", "g", "--type", "Patient,Condition"];
    check(&server.trefoil(&args), 0, "Condition");
    let manifest: serde_json::Value = serde_json::from_slice(&read(&of_group, "manifest.json")).unwrap();
    assert_eq!(manifest["output"][0]["count"], 1);
    assert!(!String::from_utf8(read(&of_group, "Patient.ndjson")).unwrap().contains("\"q\""));
    check(
        &server.trefoil(&["export", "--out", &out("no"), "--group", "nobody"]),
        1,
        "Group/nobody is not known",
    );
    check(&server.trefoil(&["export", "--out", &out("no"), "--since", "soon"]), 1, "is not an instant");
    check(
        &server.trefoil(&["export", "--out", &out("no"), "--type", "Pony"]),
        1,
        "--type: 'Pony' is not a resource type",
    );
}

#[test]
fn a_demo_stores_its_guide_and_prints_it_on_a_terminal_only() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let path = server.data().join("guide.txt");
    let guide = std::fs::read_to_string(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.json("endpoint.json")["guide"], path.to_str().unwrap());
    let password = server.demo_json()["user"]["password"].as_str().unwrap().to_owned();
    for text in [&server.base(), &password, "trefoil trust --data", "Commands to paste"] {
        assert!(guide.contains(text), "{guide:?} does not contain {text:?}");
    }
    server.stop();
    if !have("script", "the guide on a terminal") {
        return;
    }
    let serve = format!("{TREFOIL} serve --demo --listen 127.0.0.1:0 --data {}", server.data().display());
    let mut child = Command::new("script")
        .args(["-qefc", &serve, "/dev/null"])
        .env("TREFOIL_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let guide_lines: Vec<String> = lines.take_while(|line| !line.contains("Stop the server")).collect();
    let pid = server.json("endpoint.json")["pid"].to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    child.wait().unwrap();
    assert!(guide_lines[0].starts_with("ready "), "{guide_lines:?}");
    assert!(guide_lines.iter().any(|line| line.contains(&password)), "{guide_lines:?}");
}

/// An ephemeral server says everything in one line, answers at once, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_server_says_everything_in_one_line() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let run = || Command::new(TREFOIL).args(["serve", "--ephemeral"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut servers = [run(), run()];
    let read = |server: &mut std::process::Child| -> Value {
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let lines = servers.each_mut().map(read);
    assert_ne!(lines[0]["base_url"], lines[1]["base_url"]);
    for (line, server) in lines.iter().zip(&mut servers) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let ca = reqwest::Certificate::from_pem(&std::fs::read(text(&line["ca"])).unwrap()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();
        let backends = line["demo"]["backend"].as_array().unwrap();
        let backend = backends.iter().find(|client| client["alg"] == "ES384").unwrap();
        let address = format!("{}/oauth2/token", text(&line["base_url"]));
        let form = [
            ("grant_type", "client_credentials"),
            ("scope", "system/Patient.rs"),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", &assertion(backend, &address)),
        ];
        let token: Value = client.post(address).form(&form).send().await.unwrap().json().await.unwrap();
        let patients = client.get(format!("{}/Patient", text(&line["fhir_base"])));
        let patients = patients.bearer_auth(text(&token["access_token"])).send().await.unwrap();
        assert_eq!(patients.status(), 200);
        // Administration commands work as with any other server.
        let data = text(&line["data"]);
        let list = Command::new(TREFOIL).args(["client", "list", "--data", &data]).output().unwrap();
        check(&list, 0, "[demo]");
        assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
        assert_eq!(server.wait().unwrap().code(), Some(0));
        assert!(!std::path::Path::new(&data).exists(), "{data} is left");
    }
    let output = Command::new(TREFOIL).args(["serve", "--ephemeral", "--data", "x"]).output().unwrap();
    check(&output, 2, "cannot be used with");
}

/// An ephemeral server whose standard input is a pipe ends when it closes; one whose input was already closed
/// does not.
#[test]
fn an_ephemeral_server_ends_with_the_program_that_started_it() {
    let run = |input: Stdio| {
        let mut command = Command::new(TREFOIL);
        command.args(["serve", "--ephemeral", "--insecure-http"]).stdin(input).stdout(Stdio::piped());
        let mut server = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let facts: Value = serde_json::from_str(&line).unwrap();
        (server, std::path::PathBuf::from(facts["data"].as_str().unwrap()))
    };
    let (mut server, data) = run(Stdio::piped());
    assert!(data.exists());
    drop(server.stdin.take());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!data.exists(), "{} is left", data.display());

    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let (mut server, data) = run(reader.into());
    let list = Command::new(TREFOIL).args(["client", "list", "--data"]).arg(&data).output().unwrap();
    check(&list, 0, "[demo]");
    // The next ephemeral server removes the folder of one that was killed.
    server.kill().unwrap();
    server.wait().unwrap();
    let (mut next, _) = run(Stdio::piped());
    assert!(!data.exists(), "{} is left", data.display());
    drop(next.stdin.take());
    next.wait().unwrap();
}

/// A generated key pair serves a client of SMART Backend Services.
#[tokio::test(flavor = "multi_thread")]
async fn a_generated_key_pair_authenticates_a_client() {
    let server = Server::demo();
    let keys = server.data().join("nightly");
    let out = keys.to_str().unwrap();
    check(&server.trefoil(&["client", "keygen", "--out", out]), 0, "trefoil client add ID");
    check(&server.trefoil(&["client", "keygen", "--out", out]), 1, "exists already");
    let private = keys.join("private.jwk");
    assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
    let jwks = keys.join("jwks.json");
    assert!(!std::fs::read_to_string(&jwks).unwrap().contains("\"d\""), "the private member is left out");
    let add = [
        "client",
        "add",
        "nightly",
        "--auth-method",
        "private_key_jwt",
        "--grant-type",
        "client_credentials",
    ];
    let add = [&add[..], &["--scope", "system/*.rs", "--jwks", jwks.to_str().unwrap()]].concat();
    check(&server.trefoil(&add), 0, "added client nightly");
    let jwk: Value = serde_json::from_slice(&std::fs::read(private).unwrap()).unwrap();
    let client = serde_json::json!({ "client_id": "nightly", "jwk": jwk });
    let address = format!("{}/oauth2/token", server.base());
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "system/Patient.rs"),
        ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
        ("client_assertion", &assertion(&client, &address)),
    ];
    let response = server.client().post(address).form(&form).send().await.unwrap();
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
}

#[test]
fn a_new_store_names_the_first_commands() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("new");
    let start = || {
        let mut server = Command::new(TREFOIL);
        server.args(["serve", "--insecure-http", "--listen", "127.0.0.1:0", "--data"]).arg(&folder);
        let mut child = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        // A server that is asked to stop has written the commands before.
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(ready.starts_with("ready "), "only this line is on standard output: {ready}");
        String::from_utf8(output.stderr).unwrap()
    };
    let first = start();
    let commands: Vec<_> = first.lines().filter_map(|line| line.trim().split("trefoil ").nth(1)).collect();
    assert_eq!(commands.len(), 3, "{first}");
    for command in commands {
        check_command(
            "the first commands",
            &shell_commands(&format!("trefoil {command}"))[0],
            MayLack::Nothing,
        );
    }
    assert!(!start().contains("new-app"), "the store is not new any more");
}
