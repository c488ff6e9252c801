//! Tests of operation: reload of the configuration, encrypted keys, and an audit log without secrets.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use trefoil_server::administration::protocol::PROTOCOL_VERSION;

use crate::support::{Server, TREFOIL};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn check(output: &Output, code: i32, says: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
    assert!(text(output).contains(says), "{:?} does not say {says:?}", text(output));
}

fn settings(server: &Server) -> PathBuf {
    server.data().join("trefoil.toml")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_reloaded_without_a_restart() {
    let mut server = Server::in_fresh_folder();
    let file = settings(&server);
    let web = "[[client]]\nclient_id = \"web\"\nredirect_uris = [\"https://app.example/cb\"]\n";
    std::fs::write(&file, web).unwrap();
    check(&server.trefoil(&["reload"]), 1, "no server runs");
    server.start_with(&["--config", file.to_str().unwrap()]);
    check(&server.trefoil(&["client", "list"]), 0, "web  web  openid  [declared]");
    check(&server.trefoil(&["client", "delete", "web"]), 1, "declared in trefoil.toml");
    check(
        &server.trefoil(&["client", "add", "hand", "--redirect-uri", "https://hand.example/cb"]),
        0,
        "added",
    );

    let group = format!("{}/Group/reload-test", server.fhir());
    let body = "{\"resourceType\":\"Group\",\"id\":\"reload-test\",\"type\":\"person\",\"actual\":true}";
    let token = server.backend_token("system/Group.cud").await;
    let put = async || {
        let request =
            server.client().put(&group).bearer_auth(&token).header("content-type", "application/fhir+json");
        request.body(body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(put().await, 201);

    let more = "[[scope]]\nname = \"notes\"\ndescription = \"read\"\n[[client]]\nclient_id = \"batch\"\nscope = \"system/*.rs\"\n\
                jwks_uri = \"https://keys.example/jwks\"\n[limits]\nbody_limit_bytes = 20\nconnections = 9\n";
    std::fs::write(&file, more).unwrap();
    let reloaded = server.trefoil(&["reload"]);
    check(&reloaded, 0, "reloaded: 1 declared clients, 0 providers, 1 scopes");
    check(&reloaded, 0, "[limits] connections was changed; that needs a restart");
    assert_eq!(put().await, 413, "the reload changed the limit of request bodies");
    let list = text(&server.trefoil(&["client", "list"]));
    assert!(list.contains("batch") && list.contains("hand") && !list.contains("web  web"), "{list}");
    let discovery = format!("{}/.well-known/openid-configuration", server.base());
    let discovery: Value = server.client().get(discovery).send().await.unwrap().json().await.unwrap();
    assert!(discovery["scopes_supported"].as_array().unwrap().contains(&"notes".into()), "{discovery}");

    // An invalid file changes nothing. A client that was added by command is not replaced by a declared one.
    std::fs::write(&file, format!("{web}scopes = 3\n")).unwrap();
    check(&server.trefoil(&["reload"]), 3, "line 4");
    std::fs::write(&file, format!("{web}\n[[client]]\nclient_id = \"hand\"\n")).unwrap();
    let reload = server.trefoil(&["reload"]);
    check(&reload, 3, "line 6: client_id: a client 'hand' was added by command");
    let list = text(&server.trefoil(&["client", "list"]));
    assert!(list.contains("batch") && !list.contains("web  web"), "{list}");

    // SIGHUP also reloads the file, but the caller gets no answer, so the test polls the list of clients.
    std::fs::write(&file, web).unwrap();
    server.signal("HUP");
    // Each poll starts a process, so no further pause is needed.
    let is_listed = (0..500).any(|_| text(&server.trefoil(&["client", "list"])).contains("web  web"));
    assert!(is_listed, "the server did not reload the file after SIGHUP");
    assert_eq!(server.stop(), Some(0));
    std::fs::write(&file, "[[client]]\nclient_id = \"hand\"\n").unwrap();
    check(&serve(&server, &["--config", file.to_str().unwrap()]), 3, "line 2: client_id");
}

/// Sends a line to the administration socket of a running server and returns the events of the response.
fn send_line(server: &Server, line: &str) -> Vec<Value> {
    let mut socket = UnixStream::connect(server.data().join("admin.sock")).unwrap();
    writeln!(socket, "{line}").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn another_version_of_the_administration_protocol_is_rejected() {
    let server = Server::demo();
    let own = PROTOCOL_VERSION;
    let trouble = format!(
        "error: version {} of the administration protocol is not supported: the running server (trefoil {}) has version \
         {own}; use the trefoil program of the running server, or restart the server with this program",
        own + 1,
        env!("CARGO_PKG_VERSION")
    );
    let reply =
        send_line(&server, &json!({ "protocol": own + 1, "command": { "unheard": "of" } }).to_string());
    assert_eq!(reply, [json!({"trouble": trouble}), json!({"exit": 1})]);
    let malformed = json!({ "protocol": own, "command": "unheard" }).to_string();
    let [trouble, exit] = &send_line(&server, &malformed)[..] else { panic!() };
    assert!(trouble["trouble"].as_str().unwrap().contains("not a command of version"), "{trouble}");
    assert_eq!(exit["exit"], 1);
    check(&server.trefoil(&["reload"]), 0, "reloaded");
}

/// Starts a server that is expected to refuse to start, and returns its output.
fn serve(server: &Server, args: &[&str]) -> Output {
    let command = ["serve", "--listen", "127.0.0.1:0"];
    let data = server.data().to_str().unwrap();
    Command::new(TREFOIL)
        .args(command)
        .args(["--data", data])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn an_encrypted_folder_needs_its_key() {
    let mut server = Server::in_fresh_folder();
    let (file, data) = (settings(&server), server.data().to_owned());
    let key = |name: &str, byte: u8| std::fs::write(data.join(name), STANDARD.encode([byte; 32])).unwrap();
    key("one", 1);
    key("two", 2);
    let config = file.to_str().unwrap().to_owned();
    let write = |text: &str| std::fs::write(&file, format!("[identity]\n{text}\n")).unwrap();
    write("key_encryption_key_file = \"one\"");
    server.start_with(&["--config", &config]);
    let kids = text(&server.trefoil(&["keys", "list"]));
    assert_eq!(server.stop(), Some(0));
    check(
        &serve(&server, &[]),
        3,
        "is encrypted, but no key is configured; set [identity] key_encryption_key_file",
    );
    check(&server.trefoil(&["keys", "list"]), 3, "is encrypted");
    let keys = server.trefoil(&["keys", "list", "--config", &config]);
    assert_eq!(text(&keys), kids);
    write("key_encryption_key_file = \"two\"");
    check(&serve(&server, &["--config", &config]), 3, "encrypted with a key that is not configured");
    write("key_encryption_key_file = \"two\"\nprevious_key_encryption_key_file = \"one\"");
    server.start_with(&["--config", &config]);
    assert_eq!(text(&server.trefoil(&["keys", "list"])), kids);
    assert_eq!(server.stop(), Some(0));
    write("key_encryption_key_file = \"two\"");
    assert_eq!(text(&server.trefoil(&["keys", "list", "--config", &config])), kids);
}

#[test]
fn secrets_stored_in_plain_are_replaced_when_a_key_is_configured() {
    let mut server = Server::in_fresh_folder();
    let (file, data) = (settings(&server), server.data().to_owned());
    std::fs::write(data.join("key"), STANDARD.encode([1; 32])).unwrap();
    std::fs::write(&file, "[identity]\nkey_encryption_key_file = \"key\"\n").unwrap();
    let config = file.to_str().unwrap().to_owned();
    let kids = |list: &str, stage: &str| -> Vec<String> {
        let lines = list.lines().filter(|line| line.contains(&format!("  {stage}  ")));
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    server.start();
    let plain = text(&server.trefoil(&["keys", "list"]));
    let rotated = text(&server.trefoil(&["keys", "rotate", "--server-secret"]));
    assert!(rotated.starts_with("rotated the server secret"), "{rotated}");
    assert_eq!(server.stop(), Some(0));
    server.start_with(&["--config", &config]);
    let encrypted = text(&server.trefoil(&["keys", "list"]));
    assert_eq!(kids(&encrypted, "retiring"), kids(&plain, "active"));
    assert_eq!(kids(&encrypted, "active").len(), kids(&plain, "active").len());
    assert!(kids(&plain, "next").iter().all(|kid| !encrypted.contains(kid.as_str())), "{encrypted}");
    assert_eq!(server.stop(), Some(0));
    let rotated = text(&server.trefoil(&["keys", "rotate", "--server-secret", "--config", &config]));
    assert!(rotated.starts_with("rotated the server secret"), "{rotated}");
    assert_eq!(text(&server.trefoil(&["keys", "list", "--config", &config])), encrypted);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_records_actions_without_secrets() {
    let mut server = Server::demo();
    let added = server.trefoil(&[
        "client",
        "add",
        "office",
        "--auth-method",
        "client_secret_post",
        "--scope",
        "trefoil/admin",
    ]);
    let added = text(&added);
    let secret = added.split("client_secret ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let backend = server.backend_token("system/*.rs").await;
    let client = server.client();
    let token_url = format!("{}/oauth2/token", server.base());
    let form = |secret: &str| {
        let pairs =
            [("grant_type", "client_credentials"), ("client_id", "office"), ("client_secret", secret)];
        client.post(&token_url).form(&pairs).send()
    };
    assert_eq!(form("a-wrong-secret-that-somebody-tried").await.unwrap().status(), 401);
    let reply: Value = form(&secret).await.unwrap().json().await.unwrap();
    let admin = reply["access_token"].as_str().unwrap().to_owned();
    let users = format!("{}/admin/users", server.base());
    let new = serde_json::json!({ "username": "ash", "password": "a long password for ash" });
    let creation = client
        .post(&users)
        .bearer_auth(&admin)
        .header("content-type", "application/json")
        .body(new.to_string());
    let creation = creation.send().await.unwrap();
    assert_eq!(creation.status(), 201);
    let sub = creation.json::<Value>().await.unwrap()["sub"].as_str().unwrap().to_owned();
    let export = client.get(format!("{}/$export", server.fhir())).bearer_auth(&backend).send().await.unwrap();
    assert_eq!(export.status(), 202);
    assert!(server.trefoil(&["keys", "rotate", "--now"]).status.success());
    // The stop would wait for the open connection of the client.
    drop(client);
    assert_eq!(server.stop(), Some(0));

    let mut log = String::new();
    for entry in std::fs::read_dir(server.data().join("audit")).unwrap() {
        log.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        let is_text = |at: &str| event.pointer(at).is_some_and(Value::is_string);
        assert!(["/type/code", "/recorded", "/source/observer/display"].into_iter().all(is_text), "{event}");
        assert!(event.pointer("/agent/0/requestor") == Some(&true.into()), "{event}");
    }
    let codes: BTreeSet<_> =
        events.iter().filter_map(|event| event.pointer("/subtype/0/code")?.as_str()).collect();
    for code in ["client", "user", "token", "client-authentication", "export", "key-rotation"] {
        assert!(codes.contains(code), "{code} is not among {codes:?}");
    }
    let of = |code: &str, id: &str| {
        let is_it =
            |event: &&Value| event["subtype"][0]["code"] == code && event["entity"].to_string().contains(id);
        events.iter().find(is_it).unwrap_or_else(|| panic!("no {code} of {id}"))
    };
    // The events name the actor: the back-end client for requests over HTTP, the operator for commands.
    let created = of("user", &sub);
    assert_eq!(created["agent"][0]["who"]["identifier"]["value"], "office", "{created}");
    assert!(created["agent"][0]["network"]["address"].is_string(), "{created}");
    assert_eq!(of("client", "office")["agent"][0]["type"]["text"], "operator");
    let failure = events.iter().find(|event| event["outcome"] == "4").unwrap();
    assert_eq!(failure["agent"][0]["who"]["identifier"]["value"], "office", "{failure}");

    let demo = server.demo_json();
    let mut secrets = vec![secret, backend, admin, "a-wrong-secret".to_owned(), "a long password".to_owned()];
    let members = ["client_secret", "password", "d"];
    collect(&demo, &members, &mut secrets);
    assert!(secrets.len() > 8);
    for secret in secrets {
        assert!(!log.contains(&secret), "the audit log contains a secret");
    }
}

/// Collects the values of the members with these names at any depth.
fn collect(value: &Value, members: &[&str], values: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                values.extend(value.as_str().filter(|_| members.contains(&name.as_str())).map(str::to_owned));
                collect(value, members, values);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, members, values)),
        _ => {}
    }
}

#[test]
fn only_some_commands_create_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trefoil"));
        let output = command.current_dir(folder.path()).args(arguments).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(printed).unwrap())
    };
    for arguments in [
        &["user", "list"][..],
        &["client", "list"],
        &["client", "show", "x"],
        &["keys", "list"],
        &["keys", "rotate"],
        &["release", "list"],
        &["user", "sign-out", "ada"],
        &["export", "--out", "out"],
    ] {
        let (code, printed) = run(&[arguments, &["--data", "daat"]].concat());
        assert_eq!(code, Some(1), "{arguments:?}: {printed}");
        let text = "error: daat contains no store; start the server or import something first, or name the folder with --data";
        assert_eq!(printed.trim(), text, "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let added = ["client", "add", "app", "--redirect-uri", "https://app.example/cb", "--data", "data"];
    let (code, printed) = run(&added);
    assert!(code == Some(0) && printed.contains("created a store in data"), "{printed}");
    let (code, printed) = run(&["client", "list", "--data", "daat"]);
    assert_eq!((code, printed.trim()), (Some(1), "error: daat contains no store; did you mean ./data?"));
    let (code, printed) = run(&["client", "list", "--data", "data"]);
    assert!(code == Some(0) && printed.contains("app"), "{printed}");
    let (_, printed) =
        run(&["client", "add", "other", "--redirect-uri", "https://app.example/cb", "--data", "data"]);
    assert!(!printed.contains("created a store"), "{printed}");
}
