//! Tests that the server says why it refuses an authorization request: applications receive an error code
//! only.

use std::collections::BTreeSet;

use test_parties::answer_parameter;

use crate::sign_in::location;
use crate::support::Server;

const APP: &str = "https://app.example/cb";

fn server() -> Server {
    let mut server = Server::in_fresh_folder().with_settings("").with_variables(&[("TREFOIL_LOG", "info")]);
    let scope = "openid launch/patient patient/Observation.rs";
    let add = ["client", "add", "app", "--redirect-uri", APP, "--scope", scope];
    assert!(server.trefoil(&add).status.success());
    server.start();
    server
}

/// Sends an authorization request, and returns the error code that the application receives.
async fn refused(server: &Server, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([("response_type", "code"), ("client_id", "app"), ("redirect_uri", APP)]);
    query.extend_pairs(parameters);
    let response = server.client().get(format!("{}/oauth2/authorize?{}", server.base(), query.finish()));
    let to = location(&response.send().await.unwrap());
    assert_eq!(answer_parameter(&to, "error_description"), None, "{to}");
    answer_parameter(&to, "error").unwrap_or_else(|| panic!("no error in {to}"))
}

const PKCE: [(&str, &str); 2] =
    [("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"), ("code_challenge_method", "S256")];

/// A refused request: the error code, its parameters, and what the log says: the reason and a detail.
type RefusedRequest<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_has_one_line_with_the_value_and_the_remedy() {
    let server = server();
    let fhir = server.fhir();
    let unregistered = "openid patient/Encounter.rs";
    let cases: [RefusedRequest<'_>; 5] = [
        (
            "invalid_scope",
            &[("scope", unregistered)],
            "the scope is not registered for the client: 'patient/Encounter.rs'",
            "trefoil client change app --scope 'openid launch/patient patient/Observation.rs patient/Encounter.rs'",
        ),
        ("invalid_request", &[("scope", "launch/patient")], "aud must be the FHIR base URL", &fhir),
        (
            "invalid_request",
            &[("scope", "openid"), ("prompt", "never\nlog in")],
            "prompt must be",
            "never%0Alog in",
        ),
        ("invalid_request", &[("scope", "openid"), ("display", "tv")], "display must be page", "'tv'"),
        ("invalid_scope", &[("scope", "x';reboot;'")], "not registered", "'x%27;reboot;%27'"),
    ];
    for (error, parameters, ..) in &cases {
        for _ in 0..5 {
            assert_eq!(refused(&server, &[&PKCE[..], parameters].concat()).await, *error, "{parameters:?}");
        }
    }
    let log = server.log();
    let mut logged = BTreeSet::new();
    for (error, _, reason, detail) in &cases {
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains(reason) && line.contains(error)).collect();
        // The requests may be sent in two minutes, which have a line each.
        let minutes: BTreeSet<_> = lines.iter().map(|line| &line[.."2026-01-01T00:00".len()]).collect();
        assert!(!lines.is_empty() && lines.len() == minutes.len(), "{reason}: {lines:?}");
        // The last case has the reason of the first, and is counted with it in the same minute.
        let is_first = *detail != "'x%27;reboot;%27'";
        let is_shown = lines.iter().any(|line| line.contains(detail));
        assert!(is_shown == is_first || minutes.len() > 1, "{reason}: {lines:?}");
        logged.extend(lines);
    }
    assert!(!log.contains("reboot --"), "no remedy has a value that a stranger chose");
    let audit = server.data().join("audit");
    let audit =
        std::fs::read_dir(audit).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let audit: String = audit.collect();
    assert_eq!(audit.matches("\"authorization-request\"").count(), logged.len(), "{audit}");
    assert!(logged.len() >= 4, "{logged:?}");
    let home = server.client().get(server.base()).send().await.unwrap().text().await.unwrap();
    assert!(home.contains("Refused requests") && home.contains("trefoil client change app"), "{home}");
}
