//! `trefoil serve`: starts the server, and stops it on a signal.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use command_line::text::shell_word;
use sd_notify::NotifyState;
use store::blocking::run_blocking;
use store::{Store, StoreError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::administration::socket;
use crate::clock::{Clock, until_next_second};
use crate::config::sections::DEFAULT_DATA_FOLDER;
use crate::config::{Config, ConnectionLimits, LogSection, PlainHttp, ServeFlags, StoreEngine, exit_code};
use crate::demo;
use crate::ephemeral;
use crate::http::listen::admission::Admission;
use crate::http::listen::{self, ConnectionTimers, HttpServer, ServingPhase, Transport};
use crate::http::{dispatch, metrics};
use crate::node::app::{App, Outside};
use crate::node::clock_check::clock_fault;
use crate::node::data_folder::{has_store, lock_data_folder, make_data_folder};
use crate::node::periodic_tasks::{deliver_audit_events, send_traces, start_tasks};
use crate::node::reload::{self, reload_config};
use crate::node::store_state::check_usable;
use crate::node::{descriptors, memory_limit, tls};
use crate::records::audit::AuditCaller;
use crate::records::retained_folder::RetentionLimits;
use crate::records::server_log;

/// Time at the end in which requests are completed whose clients have disconnected.
const ABANDONED_TIME: Duration = Duration::from_secs(5);
/// Maximum time for sending the last traces, and for the last audit events.
const TRACES_TIME: Duration = Duration::from_secs(2);
const DELIVERY_TIME: Duration = Duration::from_secs(2);

/// Interval of the log lines while the server waits for its database, and the pause between two attempts.
const WAIT_LOG_INTERVAL: Duration = Duration::from_secs(10);
const WAIT_PAUSE: Duration = Duration::from_millis(500);
/// Time by which a service manager waits longer for the start, at each of these log lines.
const START_EXTENSION_US: u32 = 30_000_000;

/// Runs the server until SIGTERM or SIGINT.
pub async fn run_server(flags: &ServeFlags) -> ExitCode {
    if !flags.ephemeral {
        return run_with_data(flags).await;
    }
    ephemeral::watch_parent();
    let folder = match ephemeral::make_folder() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: failed to create a folder in {}: {error}", std::env::temp_dir().display());
            return ExitCode::FAILURE;
        }
    };
    let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let flags = ServeFlags {
        data: Some(folder.clone()),
        store: Some("memory".to_owned()),
        listen: flags.listen.or(Some(free_port)),
        demo: true,
        ..flags.clone()
    };
    let code = run_with_data(&flags).await;
    // A folder that cannot be removed is left to the system.
    drop(std::fs::remove_dir_all(&folder));
    code
}

async fn run_with_data(flags: &ServeFlags) -> ExitCode {
    let config = match Config::load(flags) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(3);
        }
    };
    let log = server_log::start_log(config.log.format);
    if let Some(folder) = config.log.folder.clone() {
        let LogSection { keep_days, max_bytes, .. } = config.log;
        let limits = RetentionLimits { keep_days, max_bytes, removes_early: true };
        if let Err(error) = log.write_to(folder.clone(), limits) {
            eprintln!("error: [log] folder {} cannot be created: {error}", folder.display());
            return ExitCode::from(3);
        }
    }
    let mut config = config;
    loop {
        let listen = match Box::pin(serve(config, flags)).await {
            Ok(ServeEnd::Stopped) => return ExitCode::SUCCESS,
            Ok(ServeEnd::DatabaseAccepted { listen }) => listen,
            Err(error) => {
                eprintln!("error: {error:#}");
                return exit_code(&error);
            }
        };
        // Nothing that this process knows of the database holds any more, so that all services are opened
        // again.
        tracing::warn!("the services start again");
        config = match Config::load(flags) {
            Ok(config) => Config { listen, ..config },
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(3);
            }
        };
    }
}

enum ServeEnd {
    Stopped,
    /// The operator has accepted a database that went back in time.
    DatabaseAccepted {
        /// The address that was listened on.
        listen: SocketAddr,
    },
}

/// Waits for a database that cannot be reached yet, because it may start at the same time, for one that lacks
/// something which this node knows, and for the clocks of both to agree.
async fn wait_for_database<T>(attempt: impl AsyncFn() -> Result<T, StoreError>) -> Result<T> {
    let started = Instant::now();
    let mut logged: Option<Instant> = None;
    loop {
        match attempt().await {
            Err(StoreError::Unavailable { reason }) => {
                if logged.is_none_or(|logged| logged.elapsed() >= WAIT_LOG_INTERVAL) {
                    let waited_s = started.elapsed().as_secs();
                    tracing::warn!(waited_s, reason, "waiting for the database");
                    notify_manager(&[
                        NotifyState::Status(&format!("waiting for the database: {reason}")),
                        NotifyState::ExtendTimeoutUsec(START_EXTENSION_US),
                    ]);
                    logged = Some(Instant::now());
                }
                tokio::time::sleep(WAIT_PAUSE).await;
            }
            ended => return Ok(ended?),
        }
    }
}

/// Tells a service manager the state of the server, if there is one (`sd_notify(3)`).
fn notify_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told the state");
    }
}

/// The error of an address that cannot be listened on, with its remedy.
fn listen_failure(listen: SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it, or choose another port with --listen".to_owned()
        }
        io::ErrorKind::PermissionDenied => format!(
            "this user may not listen on port {}; use a port from 1024 with --listen, or let systemd listen (`systemctl \
             enable --now trefoil.socket` of the package, with ListenStream=443)",
            listen.port()
        ),
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have the address; choose another one with --listen".to_owned()
        }
        _ => error.to_string(),
    };
    format!("failed to listen on {listen}: {remedy}")
}

async fn serve(config: Config, flags: &ServeFlags) -> Result<ServeEnd> {
    // One cryptography library for all of TLS; a second server in the same process finds it installed.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let budget = descriptors::descriptor_budget();
    make_data_folder(&config.data)?;
    // From here on SIGHUP reloads the configuration instead of ending the process.
    let hang_up = signal(SignalKind::hangup())?;
    let clock = Clock::ahead(config.ahead_s);
    let listeners = listen::bind_listeners(config.listen)
        .await
        .map_err(|error| anyhow!(listen_failure(config.listen, &error)))?;
    let listen = listeners.sockets[0].local_addr()?;
    if listeners.is_inherited {
        tracing::info!(%listen, "listening on a socket of the service manager; 'listen' is not used");
    }
    let port = listen.port();
    let metrics_listener = match config.metrics.listen {
        Some(listen) => {
            let bound = tokio::net::TcpListener::bind(listen).await;
            Some(bound.map_err(|error| anyhow!("[metrics] listen: {}", listen_failure(listen, &error)))?)
        }
        None => None,
    };
    let scheme = if config.plain_http == Some(PlainHttp::Loopback) { "http" } else { "https" };
    let base_url = config.base_url.clone().unwrap_or_else(|| format!("{scheme}://localhost:{port}"));
    let plain_http = config.plain_http.clone().map(Arc::new);
    let proxy_protocol_from = Arc::clone(&config.proxy_protocol_from);
    let tls = match plain_http {
        Some(_) => None,
        None => Some(tls::load_tls(config.certificate.as_ref(), &config.data, clock.now())?),
    };
    let is_new = config.engine == StoreEngine::File && !has_store(&config.data);
    let store = wait_for_database(async || config.engine.open(&config.data).await).await?;
    if flags.use_moved_store {
        backup::reuse_moved(&store, clock.now()).await?;
    }
    check_usable(&store, clock.now()).await?;
    let memory = config.data.join("node.json");
    // The folder is not locked before, so that the operator can accept the database meanwhile.
    let announcement = wait_for_database(async || store.announce(&base_url, &memory).await).await?;
    wait_for_database(async || match clock_fault(&config, &clock, &store).await? {
        None => Ok(()),
        Some(reason) => Err(StoreError::Unavailable { reason }),
    })
    .await?;
    let _lock = store.is_shared().then(|| lock_data_folder(&config.data)).transpose()?;
    if let Some(earlier) = &announcement.earlier_base_url {
        tracing::warn!(
            earlier,
            base_url,
            "the base URL has changed: tokens with the earlier issuer are no longer accepted, and users sign in again"
        );
    }
    let total = config.connections.total.min(budget.connections);
    let total = total.min(memory_limit::connections(memory_limit::memory_limit()));
    let limits = ConnectionLimits { total, ..config.connections };
    let timers = ConnectionTimers { idle: config.idle_timeout, ..ConnectionTimers::default() };
    let (is_demo, grace, data) = (config.demo, config.shutdown_grace, config.data.clone());
    let app = Box::pin(open_node(config, flags, base_url.clone(), store, clock.into())).await?;
    if announcement.is_newly_accepted {
        // Access tokens of the second of the decision are refused.
        until_next_second(app.clock.now()).await;
    }
    socket::listen_for_commands(app.clone())?;
    let (phase, phases) = watch::channel(ServingPhase::Serving);
    let proxies = app.clone();
    if let Some(tls) = &tls {
        tracing::info!("{}", tls.certificate.description());
        tls.certificate.warn_of_other_host(&base_url);
        drop(app.certificate.set(tls.certificate.clone()));
    }
    let transport = match (&tls, plain_http) {
        (Some(tls), _) => Transport::Tls { config: tls.config.clone(), base_url: base_url.as_str().into() },
        (None, Some(clients)) => Transport::Plain(clients),
        (None, None) => unreachable!("a server without TLS has clients of plain HTTP"),
    };
    let admission = Admission::new(limits);
    let connections = Arc::clone(&admission);
    // Only this function sets it.
    drop(app.open_connections.set(Box::new(move || connections.open())));
    let edge = HttpServer {
        routes: dispatch::routes(app.clone()),
        transport,
        admission,
        proxy_protocol_from,
        is_proxy: Box::new(move |peer| proxies.settings().trusted_proxies.trusts(peer.ip())),
        timers,
    };
    let edge = tokio::spawn(edge.serve(listeners, phases));
    // Ends with this function.
    let _metrics = metrics_listener
        .map(|listener| AbortOnDropHandle::new(tokio::spawn(metrics::serve_metrics(listener, app.clone()))));
    let endpoint = data.join("endpoint.json");
    let ca = tls.as_ref().and_then(|tls| tls.ca.as_ref()).map(std::path::absolute).transpose()?;
    let guide = is_demo.then(|| demo::guide::write_guide(&app, ca.as_deref())).transpose()?;
    write_endpoint(&endpoint, &app, ca.as_deref(), guide.as_ref().map(|(_, path)| path.as_path()))?;
    let mut signals = StopSignals::new(hang_up)?;
    // The program that started the server may have closed the pipe, in particular if the services start
    // again.
    let ready = match flags.ephemeral {
        true => ephemeral::announcement(&data).context("failed to read the demo project")?,
        false => format!("ready {base_url}"),
    };
    drop(writeln!(io::stdout(), "{ready}"));
    // After the line above, because audit events may follow it on standard output.
    let tasks = start_tasks(&app);
    notify_manager(&[NotifyState::Ready, NotifyState::Status(&ready)]);
    // A program that reads standard output reads the file of the guide.
    let is_person = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
    if is_new && !is_demo {
        eprintln!("{}", first_commands(&data));
    }
    if let Some((text, _)) = guide.filter(|_| is_person) {
        eprintln!("\n{text}\nStop the server with Ctrl-C.");
    }
    let end = tokio::select! {
        () = signals.wait_for_stop(&app) => ServeEnd::Stopped,
        () = ephemeral::parent_ended() => ServeEnd::Stopped,
        () = app.drain.completed() => ServeEnd::Stopped,
        () = app.store.moved() => ServeEnd::Stopped,
        () = app.store.accepted() => ServeEnd::DatabaseAccepted { listen },
    };
    let is_stopped = matches!(end, ServeEnd::Stopped);
    tracing::info!("stopping");
    notify_manager(&[NotifyState::Stopping]);
    drop(std::fs::remove_file(&endpoint));
    app.is_stopping.store(true, Ordering::Release);
    // Sending fails only if the HTTP server has already ended.
    let _ = phase.send(ServingPhase::Closing);
    // A second signal ends the grace period.
    if is_stopped {
        drop(tokio::time::timeout(grace, Box::pin(signals.wait_for_stop(&app))).await);
    }
    let _ = phase.send(ServingPhase::Stopping);
    // Waiting terminology questions could take longer than the drain time.
    app.capacity.questions.stop();
    drop(tasks);
    edge.await?;
    app.capacity.abandoned.all_ended(ABANDONED_TIME).await;
    // A collector that cannot be reached has been reported before.
    drop(tokio::time::timeout(TRACES_TIME, send_traces(app.clone())).await);
    app.store.depart().await;
    let audit = Arc::clone(&app.logs.audit);
    run_blocking(move || audit.close()).await?;
    // The next start sends the rest.
    drop(tokio::time::timeout(DELIVERY_TIME, deliver_audit_events(app)).await);
    Ok(end)
}

/// Opens the services of a node and prepares the store: declared clients, the demo project, unfinished
/// exports.
///
/// # Errors
/// An error if the store cannot be read or written.
pub async fn open_node(
    config: Config,
    flags: &ServeFlags,
    base_url: String,
    store: Store,
    outside: Outside,
) -> Result<Arc<App>> {
    let (is_demo, clients, edition) = (config.demo, config.clients.clone(), config.edition);
    let app = Box::pin(App::open(config, flags, base_url, store, outside)).await?;
    reload::store_declared_clients(&app.identity, flags, &clients, edition, app.clock.now()).await?;
    if is_demo {
        demo::seed_demo(&app).await.context("failed to add the demo project")?;
    }
    match app.bulk.resume().await {
        Ok(0) => {}
        Ok(taken_up) => tracing::info!(taken_up, "resumed unfinished exports"),
        // Reads work without them; the periodic task resumes them.
        Err(error @ StoreError::ReadOnly { .. }) => {
            tracing::warn!("unfinished exports are resumed later: {error}")
        }
        Err(error) => return Err(error).context("failed to resume unfinished exports"),
    }
    Ok(app)
}

/// The first commands for a server that has no users, clients and resources yet.
fn first_commands(data: &Path) -> String {
    let data = match data == Path::new(DEFAULT_DATA_FOLDER) {
        true => String::new(),
        false => format!(" --data {}", shell_word(data)),
    };
    format!(
        "This store is new: it has no users, no apps and no resources. Next, in another terminal:\n  \
         echo 'a long password' | trefoil user add ada --name 'Ada Example'{data}\n  \
         trefoil new-app my-app{data}\n  \
         trefoil import patients.ndjson{data}"
    )
}

/// Writes `DIR/endpoint.json`, from which tools find this server. The file is replaced atomically.
fn write_endpoint(path: &Path, app: &App, ca: Option<&Path>, guide: Option<&Path>) -> Result<()> {
    let mut endpoint = serde_json::json!({
        "base_url": app.address.base_url,
        "fhir_base": app.address.fhir_base,
        "ca": ca,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    if let Some(guide) = guide {
        endpoint["guide"] = guide.display().to_string().into();
    }
    let part = path.with_extension("json.part");
    std::fs::write(&part, serde_json::to_vec_pretty(&endpoint)?)?;
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&part, path)?;
    Ok(())
}

/// The signals that the server handles.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl StopSignals {
    fn new(hang_up: Signal) -> Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hang_up })
    }

    /// Waits for SIGTERM or SIGINT, and reloads the configuration on SIGHUP.
    async fn wait_for_stop(&mut self, app: &App) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => match app.logs.audit.on_behalf(AuditCaller::operator(), Box::pin(reload_config(app))).await.0 {
                    Ok(lines) => lines.iter().for_each(|line| tracing::info!("{line}")),
                    Err(error) => tracing::error!("{error:#}"),
                },
            }
        }
    }
}
