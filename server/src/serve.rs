//! Start, ready, stop: what `trefoil serve` does around the edge.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use identity::seal::OpenError;
use jiff::Timestamp;
use store::{Ledger as _, Store, StoreError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::admin::socket;
use crate::app::App;
use crate::audit::Caller;
use crate::clock::Clock;
use crate::config::{Config, ConfigError, Engine, Flags};
use crate::http::listen::admission::ConnectionLimits;
use crate::http::listen::{self, Edge, Phase, Timers};
use crate::http::routes;
use crate::reload::{self, reload};
use crate::{demo, descriptors, tls};

/// Runs the server until SIGTERM or SIGINT.
pub async fn run(flags: &Flags) -> ExitCode {
    start_log();
    let config = match Config::load(flags) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(3);
        }
    };
    match serve(config, flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            exit_code(&error)
        }
    }
}

/// 3 where the configuration has to be changed, else 1.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    let sealed = matches!(error.downcast_ref::<OpenError>(), Some(OpenError::Seal(_)));
    let refused = error.downcast_ref::<ConfigError>().is_some();
    ExitCode::from(if sealed || refused { 3 } else { 1 })
}

/// Logs go to standard error; `TREFOIL_LOG` says how much, as `info` or `trefoil_server=debug`.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TREFOIL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second server in one process (a test) keeps the first one's log.
    drop(log.try_init());
}

/// Makes the data folder and what lies in it, so that only their owner can enter. A data folder that was
/// there before keeps its mode: keys, records and exports are private all the same.
///
/// # Errors
/// The file system's.
pub fn make_data_folder(data: &Path) -> Result<()> {
    for dir in [data.to_owned(), data.join("store"), data.join("exports"), data.join("tls")] {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("failed to make the folder {}", dir.display()))?;
    }
    Ok(())
}

async fn serve(config: Config, flags: &Flags) -> Result<()> {
    // One crypto library for everything; a second call in one process finds it installed.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let budget = descriptors::budget();
    make_data_folder(&config.data)?;
    // From here on it asks for a reload, and ends the process no more.
    let hang_up = signal(SignalKind::hangup())?;
    let clock = Clock::ahead(config.ahead_s);
    let listeners = listen::bind(config.listen).await.with_context(|| {
        format!("failed to listen on {}; is another server running there?", config.listen)
    })?;
    let port = listeners[0].local_addr()?.port();
    let scheme = if config.insecure_http { "http" } else { "https" };
    let base_url = config.base_url.clone().unwrap_or_else(|| format!("{scheme}://localhost:{port}"));
    let tls = match config.insecure_http {
        true => None,
        false => Some(tls::load(config.certificate.as_ref(), &config.data, clock.now())?),
    };
    let store = match config.engine {
        Engine::Memory => Store::memory(),
        Engine::File => Store::open(&config.data.join("store"))?,
    };
    let limits =
        ConnectionLimits { total: config.connections.total.min(budget.connections), ..config.connections };
    let timers = Timers { idle: config.idle_timeout, ..Timers::default() };
    let (is_demo, grace) = (config.demo, config.shutdown_grace);
    let (data, clients) = (config.data.clone(), config.clients.clone());
    let app = App::open(config, flags, base_url.clone(), store, clock).await?;
    reload::declare(&app.identity, flags, &clients, app.clock.now()).await?;
    if is_demo {
        demo::plant(&app).await.context("failed to add the demo project")?;
    }
    let taken_up = app.bulk.resume().await.context("failed to take up unfinished exports")?;
    if taken_up > 0 {
        tracing::info!(taken_up, "unfinished exports go on");
    }
    socket::listen(app.clone())?;
    let (phase, phases) = watch::channel(Phase::Serving);
    let proxies = app.clone();
    let edge = Edge {
        routes: routes::routes(app.clone()),
        tls: tls.as_ref().map(|tls| tls.config.clone()),
        limits,
        is_proxy: Box::new(move |peer| proxies.settings().trusted_proxies.trusts(peer.ip())),
        timers,
    };
    let edge = tokio::spawn(edge.serve(listeners, phases));
    let sweeper = tokio::spawn(sweep(app.clone()));
    let endpoint = data.join("endpoint.json");
    let ca = tls.as_ref().and_then(|tls| tls.ca.as_ref()).map(std::path::absolute).transpose()?;
    write_endpoint(&endpoint, &app, ca.as_deref())?;
    let mut signals = Signals::new(hang_up)?;
    println!("ready {base_url}");
    signals.wait_for_stop(&app).await;
    tracing::info!("stopping");
    drop(std::fs::remove_file(&endpoint));
    app.is_stopping.store(true, Ordering::Release);
    // A receiver is missing only if the edge has ended by itself.
    let _ = phase.send(Phase::Closing);
    // A second signal ends the grace period.
    drop(tokio::time::timeout(grace, signals.wait_for_stop(&app)).await);
    let _ = phase.send(Phase::Stopping);
    // Questions that wait could take longer than the drain time.
    app.questions.stop();
    sweeper.abort();
    edge.await?;
    tokio::task::spawn_blocking(move || {
        app.audit.close();
        if let Some(log) = &app.export_log {
            log.close();
        }
    })
    .await?;
    Ok(())
}

/// `DIR/endpoint.json`: what a tool needs to find this server. Written whole or not at all.
fn write_endpoint(path: &Path, app: &App, ca: Option<&Path>) -> Result<()> {
    let endpoint = serde_json::json!({
        "base_url": app.base_url,
        "fhir_base": app.fhir_base,
        "ca": ca,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    let part = path.with_extension("json.part");
    std::fs::write(&part, serde_json::to_vec_pretty(&endpoint)?)?;
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&part, path)?;
    Ok(())
}

/// The signals that the server obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new(hang_up: Signal) -> Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hang_up })
    }

    /// Waits for SIGTERM or SIGINT; SIGHUP reloads the configuration meanwhile.
    async fn wait_for_stop(&mut self, app: &App) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => match app.audit.on_behalf(Caller::operator(), reload(app)).await.0 {
                    Ok(lines) => lines.iter().for_each(|line| tracing::info!("{line}")),
                    Err(error) => tracing::error!("{error:#}"),
                },
            }
        }
    }
}

/// Takes away all records that have expired, a little at a time: however many are made in between, by
/// proofs, attempts and requests of strangers, they do not pile up.
async fn sweep_records(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    const AT_ONCE: usize = 1_000;
    while store.sweep(now, AT_ONCE).await? == AT_ONCE {}
    Ok(())
}

/// Frees the space of expired records and exports, and tends the signing keys.
async fn sweep(app: Arc<App>) {
    let mut every = tokio::time::interval(Duration::from_secs(30));
    loop {
        every.tick().await;
        let now = app.clock.now();
        if let Err(error) = sweep_records(&app.store, now).await {
            tracing::warn!(%error, "sweep");
        }
        if let Err(error) = app.bulk.sweep(now).await {
            tracing::warn!(%error, "sweep of exports");
        }
        match app.identity.tend_keys(app.settings().rotate_keys_every, now).await {
            Ok(true) => tracing::info!("the signing keys were rotated by schedule"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "signing keys"),
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{Expect, LedgerWrite};

    use super::*;

    #[tokio::test]
    async fn one_sweep_takes_away_however_many_have_expired() {
        let store = Store::memory();
        let [made, later] = [0, 60].map(|second| Timestamp::from_second(second).unwrap());
        let expired = |n: usize| LedgerWrite::Put {
            key: format!("jti/{n}"),
            value: "true".into(),
            expires: Some(later),
            expect: Expect::Absent,
        };
        store.write((0..2_500).map(expired).collect(), made).await.unwrap();
        sweep_records(&store, later).await.unwrap();
        assert_eq!(store.sweep(later, 1).await.unwrap(), 0);
    }
}
