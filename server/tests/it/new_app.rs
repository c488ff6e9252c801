//! `trefoil new-app`: each example signs in at a real server, in a real browser if it has pages.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::clients::clients;
use crate::driver::{Driver, have_browser};
use crate::reader_shell::{RunningShell, reader_shell};
use crate::support::{Server, TREFOIL, have, installed, python_packages};

/// An example that runs; it ends with this value.
struct RunningApp {
    shell: RunningShell,
    /// The address in the first line that the program prints.
    address: String,
}

/// Returns whether the program and the library of a language are installed.
fn is_installed(language: &str) -> bool {
    match language {
        "python" => have("python3", "new-app") && installed("Authlib", &python_packages().join("authlib")),
        "java" => have("java", "new-app"),
        "r" => have("Rscript", "new-app"),
        "bash" => have("bash", "new-app") && have("curl", "new-app"),
        _ => {
            have("node", "new-app")
                && installed("openid-client", &clients().join("node_modules/openid-client"))
        }
    }
}

/// Makes an example and returns what the command prints as JSON.
fn make(server: &Server, name: &str, more: &[&str]) -> Value {
    let out = server.data().join(name).display().to_string();
    let words = [&["new-app", name, "--out", &out, "--json"], more].concat();
    let output = server.trefoil(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The command that new-app prints, with the libraries of the tests.
fn command(app: &Value) -> Command {
    let folder = Path::new(app["folder"].as_str().unwrap());
    let modules = folder.join("node_modules");
    if !modules.exists() {
        std::os::unix::fs::symlink(clients().join("node_modules"), modules).unwrap();
    }
    let environment = folder.join(".venv/bin");
    if !environment.exists() {
        std::fs::create_dir_all(&environment).unwrap();
        let python = environment.join("python");
        std::fs::write(&python, "#!/bin/sh\nexec python3 \"$@\"\n").unwrap();
        std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    reader_shell(app["run"].as_str().unwrap(), folder)
}

fn start(app: &Value) -> RunningApp {
    let mut command = command(app);
    command.stdout(Stdio::piped());
    let mut shell = RunningShell::start(command);
    let mut line = String::new();
    BufReader::new(shell.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().last().unwrap_or_default().to_owned();
    assert!(address.starts_with("http"), "{line}");
    RunningApp { shell, address }
}

async fn sign_in_and_allow(driver: &Driver, server: &Server) {
    driver.fill("#username", "willow").await;
    driver.fill("#password", server.demo_json()["user"]["password"].as_str().unwrap()).await;
    driver.press("button").await;
    driver.press("button[value=allow]").await;
}

/// Waits until the page contains a text.
async fn wait_for_text(driver: &Driver, expected: &str) {
    let mut text = String::new();
    for _ in 0..200 {
        text = driver.text("body").await;
        if text.contains(expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("'{expected}' is not on the page: {text}");
}

#[test]
fn back_ends_read_with_their_keys() {
    let server = Server::demo();
    let languages = ["python", "javascript", "java", "r", "bash"];
    for language in languages.into_iter().filter(|language| is_installed(language)) {
        let app = make(&server, &format!("back-{language}"), &["--kind", "backend", "--language", language]);
        let output = command(&app).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("patients on the server: "), "{text}{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn web_apps_sign_people_in() {
    if !have_browser() {
        return;
    }
    let server = Server::demo();
    for language in ["python", "javascript"].into_iter().filter(|language| is_installed(language)) {
        let port = test_database::free_port().unwrap().to_string();
        let name = format!("web-{language}");
        let registration = make(&server, &name, &["--kind", "web", "--language", language, "--port", &port]);
        assert!(registration["client_secret"].is_null(), "the secret is in app.json only");
        let app = start(&registration);
        let driver = Driver::start().await;
        driver.go(&app.address).await;
        sign_in_and_allow(&driver, &server).await;
        wait_for_text(&driver, "Signed in as Willow Marsh").await;
        driver.illustrate("first-app-signed-in").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_in_the_browser_signs_people_in() {
    let library = clients().join("node_modules/oauth4webapi");
    if !have_browser() || !have("node", "new-app") || !installed("oauth4webapi", &library) {
        return;
    }
    let server = Server::demo();
    let port = test_database::free_port().unwrap().to_string();
    let registration = make(&server, "page", &["--kind", "browser", "--port", &port]);
    let app = start(&registration);
    let driver = Driver::start().await;
    driver.go(&app.address).await;
    wait_for_text(&driver, "No user is signed in").await;
    driver.press("#sign-in").await;
    sign_in_and_allow(&driver, &server).await;
    wait_for_text(&driver, "Signed in as Willow Marsh").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_in_a_terminal_sign_people_in() {
    if !have_browser() {
        return;
    }
    let server = Server::demo();
    for language in ["python", "javascript"].into_iter().filter(|language| is_installed(language)) {
        let registration =
            make(&server, &format!("term-{language}"), &["--kind", "terminal", "--language", language]);
        let mut app = start(&registration);
        let driver = Driver::start().await;
        driver.go(&app.address).await;
        sign_in_and_allow(&driver, &server).await;
        wait_for_text(&driver, "You can close this page").await;
        let mut printed = String::new();
        app.shell.0.stdout.as_mut().unwrap().read_to_string(&mut printed).unwrap();
        assert!(printed.contains("Signed in as Willow Marsh"), "{printed}");
    }
}

#[test]
fn an_example_is_shown_again_and_removed() {
    let server = Server::demo();
    let first = make(&server, "again", &["--kind", "web", "--language", "python"]);
    let folder = Path::new(first["folder"].as_str().unwrap());
    let secret: Value = serde_json::from_slice(&std::fs::read(folder.join("app.json")).unwrap()).unwrap();
    assert!(secret["client_secret"].as_str().is_some_and(|secret| secret.len() > 20));
    assert_eq!(make(&server, "again", &[]), first, "nothing is made a second time");
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    let out = folder.display().to_string();
    let removed = server.trefoil(&["new-app", "again", "--out", &out, "--remove"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["notes.txt"], "files of others are kept");
    assert!(!server.trefoil(&["client", "show", "again"]).status.success());
}

#[test]
fn scopes_of_a_user_are_extended_only_with_consent() {
    let server = Server::demo();
    assert!(server.add_user(&["ada", "--name", "Ada Example"], "a walk in the garden").status.success());
    let allowed = || {
        let user = server.trefoil(&["user", "show", "ada", "--json"]);
        let user: Value = serde_json::from_slice(&user.stdout).unwrap();
        user["allowed_scopes"].as_str().unwrap().to_owned()
    };
    let before = allowed();
    let out = server.data().join("terms").display().to_string();
    let words =
        ["new-app", "terms", "--kind", "terminal", "--language", "python", "--out", &out, "--user", "ada"];
    let words = [&words[..], &["--scope", "openid user/ValueSet.rs"]].concat();
    let refusal = server.trefoil(&words);
    let text = String::from_utf8_lossy(&refusal.stderr);
    assert!(!refusal.status.success() && text.contains("may not grant user/ValueSet.rs"), "{text}");
    assert_eq!(allowed(), before);
    assert!(server.trefoil(&[&words[..], &["--yes"]].concat()).status.success());
    assert_eq!(allowed(), format!("{before} user/ValueSet.rs"));
}

/// `trefoil new-app --page`, which runs until an app is made, with its link as address.
fn open_page(server: &Server, folder: &Path) -> RunningApp {
    let mut command = Command::new(TREFOIL);
    command.args(["new-app", "--page", "--data"]).arg(server.data()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut shell = RunningShell::start(command);
    let lines = BufReader::new(shell.0.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let address = lines.map(|line| line.trim().to_owned()).find(|line| line.starts_with("http://")).unwrap();
    RunningApp { shell, address }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_makes_an_app() {
    if !have_browser() {
        return;
    }
    let server = Server::demo();
    let folder = tempfile::tempdir().unwrap();
    let mut app = open_page(&server, folder.path());
    let driver = Driver::start().await;
    driver.go(&app.address).await;
    driver.illustrate("first-app-page").await;
    driver.fill("#name", "--help").await;
    driver.press("button").await;
    assert!(driver.text("[role=alert]").await.contains("--help"), "a name is not an option");
    driver.fill("#name", "shop").await;
    driver.run("document.querySelector('[value=\"backend bash\"]').selected = true").await;
    driver.press("button").await;
    wait_for_text(&driver, "The app is registered").await;
    assert!(driver.text("body").await.contains("trefoil new-app --kind backend --language bash"));
    assert!(app.shell.0.wait().unwrap().success(), "the page ends with its app");
    assert!(folder.path().join("shop/app.sh").exists());
    assert!(server.trefoil(&["client", "show", "shop"]).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_closed_to_websites() {
    let server = Server::demo();
    let folder = tempfile::tempdir().unwrap();
    let app = open_page(&server, folder.path());
    let link = &app.address;
    let (base, query) = link.split_once("/?").unwrap();
    let none = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().redirect(none).no_proxy().build().unwrap();
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    assert_eq!(status(client.get(base)).await, 403, "without the link");
    let other_host = client.get(link).header("host", "evil.example");
    assert_eq!(status(other_host).await, 403, "another name of this machine");
    assert_eq!(status(client.get(format!("{base}/?{query}x"))).await, 403, "another link");
    let response = client.get(link).send().await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(status(client.get(link)).await, 403, "the link works once");
    let page = client.get(base).header("cookie", &cookie).send().await.unwrap().text().await.unwrap();
    let csrf = test_parties::hidden_fields(&page).remove(0).1;
    let form = |csrf: &str| {
        [("csrf", csrf), ("name", "shop"), ("example", "backend bash"), ("port", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    for (reason, cookie, origin, token) in [
        ("another site", cookie.as_str(), "http://evil.example", csrf.as_str()),
        ("no cookie", "", base, &csrf),
        ("no token", &cookie, base, "x"),
    ] {
        let post = client.post(base).header("cookie", cookie).header("origin", origin).form(&form(token));
        assert_eq!(status(post).await, 403, "{reason}");
    }
    assert!(!folder.path().join("shop").exists());
}
