//! The choice among several hosts of a URL. A former primary that returns without a fence accepts writes
//! beside the standby that was promoted meanwhile, so that every host is asked before each new connection.
//! Of several that accept writes, the one that was promoted last is used: it has the highest timeline
//! (PostgreSQL, "Timelines"), unless the operator has accepted another one after a restore (see
//! [`super::acceptance`]).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::acceptance::{self, Acceptance};
use super::failure::{chain, unavailable};
use crate::StoreError;

/// Time that a host has to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// A host of the URL.
#[derive(Clone)]
pub(super) struct DatabaseHost {
    /// Its name and port.
    pub name: Arc<str>,
    /// The settings of a connection to it alone.
    pub config: Config,
}

#[derive(Debug, Clone)]
enum HostAnswer {
    Writable(WritableHost),
    /// It cannot be reached, or accepts no writes: the reason.
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WritableHost {
    /// Time at which the server was started, which two addresses of one server share.
    server: String,
    acceptance: Acceptance,
    /// `None` if the database has no timelines.
    timeline: Option<i64>,
}

/// Why no host can be chosen.
#[derive(Debug, Clone)]
pub(super) enum HostError {
    /// None accepts writes.
    NoPrimary(String),
    /// Two accept writes that cannot be told apart.
    Rivals(String),
}

impl From<HostError> for StoreError {
    fn from(error: HostError) -> Self {
        let (HostError::NoPrimary(reason) | HostError::Rivals(reason)) = error;
        unavailable(&reason)
    }
}

/// The last choice of all requests of this process.
#[derive(Default)]
pub(super) struct HostChoice {
    last: Mutex<Option<LastChoice>>,
}

struct LastChoice {
    /// Time before the hosts were asked.
    asked: Instant,
    name: Result<Arc<str>, HostError>,
}

impl HostChoice {
    /// Asks all hosts, and returns the one to use. Concurrent calls share the answers to questions that were
    /// sent after they began.
    ///
    /// # Errors
    /// Returns [`HostError`] if no host accepts writes, or if two do that cannot be told apart.
    pub async fn choose(
        &self,
        hosts: &[DatabaseHost],
        tls: &MakeRustlsConnect,
    ) -> Result<DatabaseHost, HostError> {
        let called = Instant::now();
        let mut last = self.last.lock().await;
        let name = match &*last {
            Some(choice) if choice.asked >= called => choice.name.clone(),
            _ => {
                let start = Instant::now();
                let name = choose_now(hosts, tls).await;
                *last = Some(LastChoice { asked: start, name: name.clone() });
                name
            }
        };
        drop(last);
        let name = name?;
        let host = hosts.iter().find(|host| host.name == name);
        host.cloned().ok_or_else(|| HostError::NoPrimary("the hosts of the URL have changed".to_owned()))
    }
}

async fn choose_now(hosts: &[DatabaseHost], tls: &MakeRustlsConnect) -> Result<Arc<str>, HostError> {
    let answers = join_all(hosts.iter().map(|host| async {
        let answer = timeout(ANSWER, ask(host, tls)).await;
        let result = answer.unwrap_or_else(|_| Ok(HostAnswer::Other("no answer in time".to_owned())));
        (Arc::clone(&host.name), result.unwrap_or_else(|error| HostAnswer::Other(chain(&error))))
    }));
    best(&answers.await)
}

/// The host to use. Hosts without timelines are equal, and the first one is used, as libpq does.
fn best(answers: &[(Arc<str>, HostAnswer)]) -> Result<Arc<str>, HostError> {
    let writable = answers.iter().filter_map(|(name, answer)| match answer {
        HostAnswer::Writable(host) => Some((name, host)),
        HostAnswer::Other(_) => None,
    });
    let writable: Vec<_> = writable.collect();
    let Some(last) = writable.iter().map(|(_, host)| host.acceptance.number).max() else {
        let reason = |(name, answer): &(Arc<str>, HostAnswer)| match answer {
            HostAnswer::Other(reason) => Some(format!("{name}: {reason}")),
            HostAnswer::Writable(_) => None,
        };
        let reasons: Vec<String> = answers.iter().filter_map(reason).collect();
        let reason = format!("no host of the database accepts writes ({})", reasons.join("; "));
        return Err(HostError::NoPrimary(reason));
    };
    let candidates = || writable.iter().filter(|(_, host)| host.acceptance.number == last);
    let highest = candidates().map(|(_, host)| host.timeline).max().flatten();
    let (name, first) = candidates().find(|(_, host)| host.timeline == highest).expect("one has the maximum");
    let is_rival = |host: &WritableHost| {
        host.acceptance != first.acceptance
            || host.timeline.is_some() && host.timeline == highest && host.server != first.server
    };
    match candidates().find(|(_, host)| is_rival(host)) {
        None => Ok(Arc::clone(name)),
        Some((rival, _)) => Err(HostError::Rivals(format!(
            "the hosts {name} and {rival} of the database both accept writes, and neither was promoted after the other; \
             stop the one that must not be used"
        ))),
    }
}

async fn ask(host: &DatabaseHost, tls: &MakeRustlsConnect) -> Result<HostAnswer, tokio_postgres::Error> {
    let (client, connection) = host.config.connect(tls.clone()).await?;
    let connection = tokio::spawn(connection);
    let result = ask_on(&client).await;
    connection.abort();
    Ok(result)
}

async fn ask_on(client: &Client) -> HostAnswer {
    let server = "SELECT pg_postmaster_start_time()::text";
    // Databases with PostgreSQL's protocol have other functions.
    let server = client.query_typed_one(server, &[]).await.map(|row| row.get(0)).unwrap_or_default();
    let (timeline, acceptance) = (read_timeline(client).await, acceptance::read(client).await);
    HostAnswer::Writable(WritableHost { server, acceptance: acceptance.unwrap_or_default(), timeline })
}

/// The timeline of a database that accepts writes; `None` if it has no timelines.
pub(super) async fn read_timeline(client: &Client) -> Option<i64> {
    const TIMELINE: &str =
        "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int::bigint";
    client.query_typed_one(TIMELINE, &[]).await.ok().map(|row| row.get(0))
}

/// The hosts of a URL that the server chooses among; empty if the URL has one host, or permits a standby.
pub(super) fn hosts(config: &Config) -> Vec<DatabaseHost> {
    let all = config.get_hosts();
    if all.len() < 2 || config.get_target_session_attrs() != TargetSessionAttrs::ReadWrite {
        return Vec::new();
    }
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    all.iter().enumerate().map(|(index, host)| one_host(config, index, host, port(index))).collect()
}

/// The settings for one of several hosts.
fn one_host(config: &Config, index: usize, host: &Host, port: u16) -> DatabaseHost {
    let mut one = Config::new();
    let name = match host {
        Host::Tcp(name) => {
            one.host(name);
            name.clone()
        }
        Host::Unix(path) => {
            one.host_path(path);
            path.display().to_string()
        }
    };
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    one.port(port);
    for (text, set) in [
        (config.get_user(), Config::user as fn(&mut Config, String) -> &mut Config),
        (config.get_dbname(), Config::dbname),
        (config.get_options(), Config::options),
        (config.get_application_name(), Config::application_name),
    ] {
        if let Some(text) = text {
            set(&mut one, text.to_owned());
        }
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    one.target_session_attrs(TargetSessionAttrs::ReadWrite);
    one.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    one.channel_binding(config.get_channel_binding()).keepalives_idle(config.get_keepalives_idle());
    if let Some(limit) = config.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    DatabaseHost { name: format!("{name}:{port}").into(), config: one }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The choice among hosts, each `NAME SERVER TIMELINE ACCEPTED`, or `NAME` for a standby.
    fn choice(hosts: &[&str]) -> Result<String, String> {
        let answers = hosts.iter().map(|text| {
            let words: Vec<&str> = text.split(' ').collect();
            let result = match words[..] {
                [_] => HostAnswer::Other("a standby".to_owned()),
                [_, server, timeline, accepted] => HostAnswer::Writable(WritableHost {
                    server: server.to_owned(),
                    timeline: timeline.parse().ok(),
                    acceptance: Acceptance::of_text(accepted),
                }),
                _ => panic!("{text}"),
            };
            (Arc::from(words[0]), result)
        });
        best(&answers.collect::<Vec<_>>())
            .map(|name| name.to_string())
            .map_err(|error| StoreError::from(error).to_string())
    }

    #[test]
    fn the_host_that_was_promoted_last_is_used() {
        assert_eq!(choice(&["a", "b s 2 0"]).unwrap(), "b");
        assert_eq!(choice(&["a s 1 0", "b t 2 0"]).unwrap(), "b");
        assert_eq!(choice(&["a s 3 0", "b t 2 0"]).unwrap(), "a");
        // The operator has accepted a database of an earlier timeline.
        assert_eq!(choice(&["a s 1 1x", "b t 2 0"]).unwrap(), "a");
        assert!(choice(&["a", "b"]).unwrap_err().contains("b: a standby"));
    }

    #[test]
    fn two_primaries_that_cannot_be_told_apart_are_not_used() {
        assert!(
            choice(&["a s 2 0", "b t 2 0"])
                .unwrap_err()
                .contains("hosts a and b of the database both accept writes")
        );
        assert!(choice(&["a s 2 0", "c s 1 0", "b t 2 0"]).is_err());
        assert!(choice(&["a s 1 1x", "b t 2 1y"]).is_err(), "each was accepted without the other");
        // Two addresses of one server, and a cluster without timelines.
        assert_eq!(choice(&["a s 2 0", "b s 2 0"]).unwrap(), "a");
        assert_eq!(choice(&["a s - 0", "b t - 0"]).unwrap(), "a");
    }
}
