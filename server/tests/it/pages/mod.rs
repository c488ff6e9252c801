//! Tests every page in a real browser for accessibility (the criteria of WCAG 2.2 AA that a program can
//! check).
//!
//! `TREFOIL_PICTURES=DIR` saves screenshots of each page with the sizes of a phone and a desktop, in light
//! and dark mode. The rules of axe-core are checked, too, if `.ci/run` has installed it.

use std::path::PathBuf;

use serde_json::Value;

use crate::clients::clients;
use crate::driver::{Driver, have_browser};
use crate::support::{Server, installed};

/// Script that returns the defects of the current page as sentences.
const CHECKS: &str = include_str!("checks.js");

/// Script that returns the elements that the keyboard can focus, in the order of the page.
const REACHED: &str = r#"
window.reachable = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
  .filter((element) => element.checkVisibility({ checkVisibilityCSS: true }) && !element.disabled);
document.activeElement?.blur();
window.getSelection().removeAllRanges();
document.body.tabIndex = -1;
document.body.focus();
document.body.removeAttribute("tabindex");
return window.reachable.length;
"#;

/// Script that returns the focused element, and whether the focus is visible (2.4.7, 1.4.11).
const FOCUS: &str = r#"
const style = getComputedStyle(document.activeElement);
const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
return [window.reachable.indexOf(document.activeElement), seen, document.activeElement.outerHTML.slice(0, 90)];
"#;

/// Runs axe-core and returns the violations as sentences.
const AXE: &str = r#"
return axe.run().then((result) => result.violations.map((found) => found.id + ": " + found.nodes[0].html));
"#;

const TAB: char = '\u{e004}';

async fn look(driver: &Driver, name: &str) {
    let pictures = std::env::var_os("TREFOIL_PICTURES").map(PathBuf::from);
    let axe = clients().join("node_modules/axe-core/axe.min.js");
    let axe = installed("axe-core", &axe).then(|| std::fs::read_to_string(axe).unwrap());
    for (scheme, width, height) in [
        ("light", 320, 640),
        ("light", 360, 780),
        ("light", 390, 844),
        ("light", 1280, 800),
        ("dark", 390, 844),
        ("dark", 1280, 800),
    ] {
        driver.prefer(scheme).await;
        driver.resize(width, height).await;
        let wrong = driver.run(CHECKS).await;
        assert_eq!(wrong, Value::Array(Vec::new()), "{name}, {scheme}, {width} wide");
        if let Some(axe) = &axe {
            let violations = driver.run(&format!("{axe}\n{AXE}")).await;
            assert_eq!(violations, Value::Array(Vec::new()), "{name}, {scheme}, {width} wide, axe-core");
        }
        if let Some(folder) = &pictures {
            std::fs::create_dir_all(folder).unwrap();
            let file = folder.join(format!("{name}-{scheme}-{width}.png"));
            std::fs::write(file, driver.picture().await).unwrap();
        }
    }
    driver.prefer("light").await;
    let count = driver.run(REACHED).await.as_u64().unwrap();
    for expected in 0..count {
        driver.key(TAB).await;
        let focus = driver.run(FOCUS).await;
        assert_eq!(focus[0], expected, "{name}: the focus is at {}", focus[2]);
        assert_eq!(focus[1], true, "{name}: the focus cannot be seen at {}", focus[2]);
    }
}

/// Starts a device authorization and returns its user code.
async fn device_code(server: &Server) -> String {
    let form = [("client_id", "demo-device"), ("scope", "openid profile garden.notes offline_access")];
    let device_response =
        server.client().post(format!("{}/oauth2/device_authorization", server.base())).form(&form);
    let response: Value = device_response.send().await.unwrap().json().await.unwrap();
    response["user_code"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

#[tokio::test]
async fn every_page_is_accessible() {
    if !have_browser() {
        return;
    }
    let server = Server::plain_demo();
    let demo = server.demo_json();
    let driver = Driver::start().await;
    driver.refuse_suggestions().await;
    driver.add_authenticator().await;
    let base = server.base();
    let go = async |path: &str| driver.go(&format!("{base}{path}")).await;

    go("/").await;
    look(&driver, "home").await;
    go("/nothing-here").await;
    look(&driver, "not-found").await;
    driver.run("document.querySelector('summary').click()").await;
    look(&driver, "not-found-details").await;
    go("/sign-out").await;
    look(&driver, "signed-out").await;
    go("/recovery").await;
    look(&driver, "recovery").await;
    driver.fill("#username", "willow").await;
    driver.fill("#code", "0000-0000-0000-0000").await;
    driver.press("button").await;
    driver.find("[role=alert]").await;
    look(&driver, "recovery-wrong").await;
    let link = crate::one_time_links::link(&server, "willow");
    driver.go(&link).await;
    look(&driver, "one-time-link").await;
    // The page hides its address from other sites, and the choice of a language still returns to it.
    for (tag, title) in [("de", "Passwort setzen"), ("en", "Set a password")] {
        driver.press(&format!("a[href='/language/{tag}']")).await;
        driver.wait_for(title).await;
    }
    driver.fill("#new", "password123").await;
    driver.press("form[action='/one-time-link'] button").await;
    driver.find("[role=alert]").await;
    look(&driver, "one-time-link-weak").await;
    crate::one_time_links::link(&server, "willow");
    driver.go(&link).await;
    look(&driver, "one-time-link-ended").await;
    go(&authorize(&demo["native"], "http://localhost:1/callback", "openid", "")).await;
    look(&driver, "sign-in").await;
    driver.fill("#username", "willow").await;
    driver.fill("#password", "not the password").await;
    driver.press("form[action='/sign-in'] button").await;
    driver.find("[role=alert]").await;
    look(&driver, "sign-in-wrong").await;

    driver.sign_in(&server).await;
    driver.wait_for("Your account").await;
    look(&driver, "account-new").await;
    let planner = &demo["third_party"];
    let back = planner["redirect_uris"][0].as_str().unwrap();
    go(&authorize(planner, back, "openid profile offline_access garden.notes", "")).await;
    driver.find("form[action='/consent']").await;
    look(&driver, "consent").await;
    // No server listens at the redirect URI; the consent is listed on the account page.
    driver.press("button[value=allow]").await;
    while driver.run("return location.href").await.as_str().unwrap().contains("/consent") {
        tokio::task::yield_now().await;
    }
    go("/account").await;
    driver.find("form[action='/account/apps/remove']").await;
    driver.add_passkey("A phone with a rather long name that its owner chose").await;
    look(&driver, "account").await;
    driver.fill("#current", "not the password").await;
    driver.fill("#new", "a walk in the garden").await;
    driver.press("form[action='/account/password'] button").await;
    driver.find("[role=alert]").await;
    look(&driver, "account-wrong").await;
    driver.press("form[action='/account/recovery-codes'] button").await;
    driver.wait_for("Your recovery codes").await;
    look(&driver, "recovery-codes").await;

    go("/device").await;
    look(&driver, "device").await;
    driver.fill("#user_code", "BBBB-BBBB").await;
    driver.press("button").await;
    driver.find("[role=alert]").await;
    look(&driver, "device-unknown").await;
    let code = device_code(&server).await;
    driver.fill("#user_code", &code.to_lowercase()).await;
    driver.press("button").await;
    assert_eq!(driver.text("p.code").await, code);
    look(&driver, "device-asked").await;
    driver.press("button[value=allow]").await;
    driver.wait_for("Device connected").await;
    look(&driver, "device-connected").await;

    go("/sign-out").await;
    look(&driver, "sign-out").await;
    go("/account").await;
    driver.press("form[action='/account/passkeys/ask'] button").await;
    driver.find("p.done").await;
    driver.sign_out(&server).await;
    driver.sign_in(&server).await;
    driver.wait_for("Use your passkey").await;
    look(&driver, "passkey-after-password").await;

    let health = &demo["smart"];
    let back = health["redirect_uris"][0].as_str().unwrap();
    go(&authorize(health, back, "launch/patient patient/*.rs", &format!("{base}/fhir/R4"))).await;
    driver.fill("#username", demo["users"][1]["username"].as_str().unwrap()).await;
    driver.fill("#password", demo["users"][1]["password"].as_str().unwrap()).await;
    driver.press("form[action='/sign-in'] button").await;
    driver.wait_for("Choose a patient").await;
    look(&driver, "patient").await;
}

#[tokio::test]
async fn the_console_is_accessible() {
    if !have_browser() {
        return;
    }
    let server = Server::plain_demo();
    let demo = server.demo_json();
    assert!(server.trefoil(&["user", "change", "willow", "--administrator"]).status.success());
    let driver = Driver::start().await;
    driver.refuse_suggestions().await;
    let base = server.base();
    let go = async |path: &str| driver.go(&format!("{base}{path}")).await;
    // A refused request, with its reason.
    let plain = authorize(&demo["native"], "http://localhost:1/callback", "openid", "");
    let plain_request = plain.replace("code_challenge_method=S256", "code_challenge_method=plain");
    server.client().get(format!("{base}{plain_request}")).send().await.unwrap();
    go("/console").await;
    driver.fill("#username", "willow").await;
    driver.fill("#password", demo["user"]["password"].as_str().unwrap()).await;
    driver.press("form[action='/sign-in'] button").await;
    driver.wait_for("Console").await;
    look(&driver, "console").await;
    driver.run("for (const details of document.querySelectorAll('details')) details.open = true").await;
    look(&driver, "console-open").await;
    go("/console/user?name=willow").await;
    look(&driver, "console-user").await;
    go("/console/client?id=demo-device").await;
    look(&driver, "console-client").await;
    driver.press("button[aria-label^='Delete']").await;
    driver.wait_for("Are you sure?").await;
    look(&driver, "console-question").await;
    driver.press("button").await;
    driver.wait_for("Done").await;
    look(&driver, "console-done").await;
}

/// Returns the path and query of an authorization request.
fn authorize(client: &Value, redirect_uri: &str, scope: &str, aud: &str) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("response_type", "code"),
            ("client_id", client["client_id"].as_str().unwrap()),
            ("redirect_uri", redirect_uri),
            ("scope", scope),
            ("aud", aud),
            ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
            ("code_challenge_method", "S256"),
        ])
        .finish();
    format!("/oauth2/authorize?{query}")
}

/// The report of the conformance suite is a page of its own, made from an invented run.
#[tokio::test]
async fn the_conformance_report_is_accessible() {
    if !have_browser() {
        return;
    }
    let driver = Driver::start().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/docs");
    driver.go(&format!("file://{folder}/example-report.html")).await;
    look(&driver, "conformance-report").await;
    driver.run("for (const details of document.querySelectorAll('details')) details.open = true").await;
    look(&driver, "conformance-report-open").await;
    let filtered = "const form = document.querySelector('form'); form.text.value = 'USERINFO'; \
        form.verdict.value = 'fail'; form.dispatchEvent(new Event('input')); \
        return [...document.querySelectorAll('.cases li')].filter((item) => item.checkVisibility()).map((item) => item.textContent.trim())";
    assert_eq!(driver.run(filtered).await, serde_json::json!(["✕ b"]));
}

#[tokio::test]
async fn the_home_page_is_replaced_or_switched_off() {
    let mut server = Server::in_fresh_folder().with_settings("[pages]\nhome = \"off\"\n");
    server.start();
    let home = async || server.client().get(format!("{}/", server.base())).send().await.unwrap();
    assert_eq!(home().await.status(), 404);
    let settings = server.data().join("trefoil.toml");
    std::fs::write(&settings, "[pages]\nhome = \"https://portal.example/\"\n").unwrap();
    assert!(server.trefoil(&["reload"]).status.success());
    let response = home().await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (302, &"https://portal.example/".parse().unwrap())
    );
    std::fs::write(&settings, "[pages]\nhome = \"http://portal.example/\"\n").unwrap();
    let reload = server.trefoil(&["reload"]);
    assert!(
        String::from_utf8_lossy(&reload.stderr).contains("home: write on, off, or the address"),
        "{reload:?}"
    );
    assert_eq!(home().await.status(), 302, "the settings of before stay");
    std::fs::write(&settings, "[pages]\ndocumentation = \"https://docs.example/{version}/\"\n").unwrap();
    assert!(server.trefoil(&["reload"]).status.success());
    let page = home().await.text().await.unwrap();
    let link = format!("<a href=\"https://docs.example/{}/\">", env!("CARGO_PKG_VERSION"));
    assert!(page.contains(&link), "{page}");
    for setting in ["documentation", "imprint", "privacy"] {
        std::fs::write(&settings, format!("[pages]\n{setting} = \"javascript:alert(1)\"\n")).unwrap();
        let reload = server.trefoil(&["reload"]);
        let says = format!("{setting}: write an address");
        assert!(String::from_utf8_lossy(&reload.stderr).contains(&says), "{reload:?}");
    }
    let texts = "help = \"mailto:help@example.org\"\ndescription = \"The records of a ward.\"\n\
                 sign_in_text = \"Use the account of the ward.\"\nde = { sign_in_text = \"Mit dem Stationskonto.\" }\n";
    std::fs::write(&settings, format!("[pages]\n{texts}")).unwrap();
    assert!(server.trefoil(&["reload"]).status.success());
    // A sentence that has no German form is shown as it is.
    for (path, language, expected) in [
        ("/", "en", "The records of a ward."),
        ("/", "de", "The records of a ward."),
        ("/sign-in", "en", "Use the account of the ward."),
        ("/sign-in", "de", "Mit dem Stationskonto."),
        ("/sign-in", "de", "<a href=\"mailto:help@example.org\">Hilfe</a>"),
    ] {
        let page =
            server.client().get(format!("{}{path}", server.base())).header("accept-language", language);
        let page = page.send().await.unwrap().text().await.unwrap();
        assert!(page.contains(expected), "{page}");
    }
    for (reload, expected) in [
        ("help = \"javascript:alert(1)\"", "help: write an address"),
        ("description = \" \"", "description: a sentence must have 1 to 300 printable characters"),
        ("de = { sign_in_text = \"one\\ntwo\" }", "sign_in_text: a sentence must have"),
        ("de = { name = \"x\" }", "unknown field `name`"),
    ] {
        std::fs::write(&settings, format!("[pages]\n{reload}\n")).unwrap();
        let output = server.trefoil(&["reload"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
    // Every page links to the imprint and the privacy notice, error pages too.
    let links = "imprint = \"https://example.org/imprint\"\nprivacy = \"https://example.org/privacy\"\n";
    std::fs::write(&settings, format!("[pages]\n{links}")).unwrap();
    assert!(server.trefoil(&["reload"]).status.success());
    for (path, language, names) in
        [("/", "en", ["Imprint", "Privacy"]), ("/nowhere", "de", ["Impressum", "Datenschutz"])]
    {
        let page = server.client().get(format!("{}{path}", server.base()));
        let page = page.header("accept", "text/html").header("accept-language", language);
        let page = page.send().await.unwrap().text().await.unwrap();
        for (name, address) in names.iter().zip(["imprint", "privacy"]) {
            assert!(
                page.contains(&format!("<a href=\"https://example.org/{address}\">{name}</a>")),
                "{page}"
            );
        }
    }
}
