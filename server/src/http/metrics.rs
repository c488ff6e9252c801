//! GET {base}/metrics, in the text format of Prometheus.
//!
//! Names follow the conventions of Prometheus: a prefix, base units, and `_total` for counters. The labels
//! have fixed values: routes with their placeholders, kinds of events, and reasons from fixed sets of texts.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use identity::model::scope::NamedScope;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use store::space::free_bytes;
use store::{StoreUsage, Versions as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::admin::check_scope;
use super::extract::RequestContext;
use super::problem::Problem;
use super::reply::{self, Response};
use super::routes;
use crate::node::app::App;
use crate::node::process_usage::ProcessUsage;
use crate::records::audit::counts::RefusalCount;
use crate::records::audit::queue::DeliveryCounts;
use crate::records::request_metrics::{RouteCounts, RouteSeries, STATUS_CLASSES};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Maximum time for the head of a request, which is also that between two requests of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// Time that the store has to answer a scrape.
const STORE_ANSWER: Duration = Duration::from_millis(800);
/// Pause after a failure of the accept loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Shows the metrics to a monitoring or an administrator.
pub async fn show_metrics(context: &RequestContext) -> Result<Response, Problem> {
    check_scope(context, &[NamedScope::Metrics, NamedScope::Admin]).await?;
    Ok(metrics_response(&context.app).await)
}

/// The metrics, without a check of the caller.
pub async fn metrics_response(app: &Arc<App>) -> Response {
    reply::no_store(reply::body(StatusCode::OK, TEXT, metrics_text(app).await))
}

/// Serves `/metrics` over plain HTTP, without a check of the caller, until the future is dropped.
pub async fn serve_metrics(listener: TcpListener, app: Arc<App>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // For example, all descriptors are in use.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let app = app.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let app = app.clone();
            async move {
                Ok::<_, Infallible>(match request.uri().path() {
                    "/metrics" if matches!(*request.method(), Method::GET | Method::HEAD) => {
                        metrics_response(&app).await
                    }
                    _ => reply::body(StatusCode::NOT_FOUND, TEXT, "only GET /metrics is served here\n"),
                })
            }
        });
        let mut connection = hyper::server::conn::http1::Builder::new();
        connection.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

async fn metrics_text(app: &Arc<App>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::read(app).await));
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Scrape {
    routes: Vec<(&'static str, String, RouteCounts)>,
    events: Vec<(&'static str, u64)>,
    refusals: Vec<RefusalCount>,
    throttle: [(&'static str, u64); 2],
    bucket_requests: Vec<(&'static str, &'static str, u64)>,
    gauges: Vec<Gauge>,
    counters: Vec<(&'static str, &'static str, f64)>,
    process: ProcessUsage,
}

/// A gauge without labels, or with one.
#[derive(Debug)]
struct Gauge {
    name: &'static str,
    help: &'static str,
    values: Vec<(Labels, f64)>,
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Gauge {
    Gauge { name, help, values: vec![(Labels(Vec::new()), value)] }
}

impl Scrape {
    async fn read(app: &Arc<App>) -> Self {
        let all: Vec<_> = routes::all().collect();
        let series = app.logs.metrics.series(all.len());
        // The last series has no route.
        let route_lines = |(index, series): (usize, &RouteSeries)| {
            let counts = series.counts()?;
            Some(match all.get(index) {
                Some(route) => (route.method.as_str(), format!("/{}", route.path), counts),
                None => ("other", "other".to_owned(), counts),
            })
        };
        Self {
            routes: series.iter().enumerate().filter_map(route_lines).collect(),
            events: app.logs.audit.counts().events(),
            refusals: app.logs.audit.counts().refusals(),
            throttle: [
                ("checked", app.identity.throttle.counts.checked.load(Ordering::Relaxed)),
                ("delayed", app.identity.throttle.counts.delayed.load(Ordering::Relaxed)),
            ],
            bucket_requests: app.logs.bucket_requests.counts(),
            gauges: gauges(app).await,
            counters: counters(app),
            process: ProcessUsage::read(),
        }
    }
}

async fn gauges(app: &Arc<App>) -> Vec<Gauge> {
    let now = app.clock.now();
    let labelled = |name, help, values: [(&'static str, usize); 2]| Gauge {
        name,
        help,
        values: values
            .map(|(budget, bytes)| (Labels(vec![("budget", budget.to_owned())]), bytes as f64))
            .into(),
    };
    let (bodies, answers) = (&app.capacity.bodies, &app.capacity.answers);
    let mut gauges = vec![
        Gauge {
            name: "trefoil_build_info",
            help: "Version of the program",
            values: vec![(Labels(vec![("version", env!("CARGO_PKG_VERSION").to_owned())]), 1.0)],
        },
        gauge(
            "trefoil_stopping",
            "Whether the server is stopping",
            f64::from(u8::from(app.is_stopping.load(Ordering::Acquire))),
        ),
        gauge(
            "trefoil_audit_log_failed",
            "Whether the audit log cannot be written",
            f64::from(u8::from(app.logs.audit.fault().is_some())),
        ),
        labelled(
            "trefoil_memory_budget_bytes",
            "Maximum memory for request bodies and for answers",
            [("bodies", bodies.total()), ("answers", answers.total())],
        ),
        labelled(
            "trefoil_memory_budget_used_bytes",
            "Memory in use for request bodies and for answers",
            [("bodies", bodies.used()), ("answers", answers.used())],
        ),
    ];
    let queued = app.logs.audit.queued() as f64;
    gauges.push(gauge(
        "trefoil_audit_log_queued_lines",
        "Lines of the audit log that are not written yet",
        queued,
    ));
    let questions = app.capacity.questions.open() as f64;
    gauges.push(gauge("trefoil_questions_open", "Long terminology questions that run or wait", questions));
    if let Some(open) = app.open_connections.get() {
        gauges.push(gauge("trefoil_connections_open", "Open connections of clients", open() as f64));
    }
    gauges.extend(store_gauges(app));
    gauges.extend(store_answers(app, now).await);
    if let Some(free) = free_bytes(&app.config.data) {
        gauges.push(gauge("trefoil_data_free_bytes", "Free space for the data folder", free as f64));
    }
    if let Some(queue) = app.logs.audit.queue() {
        let (waiting, failed) = (queue.unsent_bytes() as f64, queue.fault().is_some());
        gauges.extend([
            gauge("trefoil_audit_unsent_bytes", "Audit events that wait for their destination", waiting),
            gauge(
                "trefoil_audit_delivery_failed",
                "Whether audit events do not reach their destination",
                f64::from(u8::from(failed)),
            ),
        ]);
    }
    let facts = app.backups.state.facts();
    if app.backups.schedule.is_some() && !facts.is_drill {
        let last = facts.last.map_or(0, |last| last.as_second()) as f64;
        let duration = facts.duration.map_or(0.0, |duration| duration.as_secs_f64());
        let failing = f64::from(u8::from(facts.fault.is_some()));
        gauges.extend([
            gauge("trefoil_backup_timestamp_seconds", "Time of the last backup by schedule", last),
            gauge("trefoil_backup_bytes", "Size of the last backup by schedule", facts.bytes as f64),
            gauge("trefoil_backup_duration_seconds", "Time that the last backup of this node took", duration),
            gauge("trefoil_backup_failing", "1 while no backup by schedule can be made", failing),
        ]);
    }
    if let Some(certificate) = app.certificate.get() {
        let until = certificate.valid_until().as_second() as f64;
        gauges.push(gauge(
            "trefoil_certificate_expiry_timestamp_seconds",
            "End of the certificate's validity",
            until,
        ));
    }
    gauges
}

/// The answers of the store. One that is slow or cannot be read must not prevent a scrape: its series are
/// missing, and it counts as not writable.
async fn store_answers(app: &Arc<App>, now: Timestamp) -> Vec<Gauge> {
    let (writable, seq, open) = tokio::join!(
        timeout(STORE_ANSWER, app.store.check_writable()),
        timeout(STORE_ANSWER, app.store.last_seq()),
        timeout(STORE_ANSWER, app.bulk.open_job_count(now)),
    );
    let flag = |is_set: bool| f64::from(u8::from(is_set));
    let is_incomplete = writable.is_err() || seq.is_err() || open.is_err();
    let mut gauges = vec![
        gauge(
            "trefoil_scrape_incomplete",
            "1 if the store did not answer this scrape in time",
            flag(is_incomplete),
        ),
        gauge(
            "trefoil_store_writable",
            "Whether the store accepts writes",
            flag(matches!(writable, Ok(Ok(())))),
        ),
    ];
    if let Ok(Ok(seq)) = seq {
        gauges.push(gauge("trefoil_store_sequence", "Sequence number of the last commit", seq.0 as f64));
    }
    if let Ok(Ok(open)) = open {
        gauges.push(gauge("trefoil_exports_open", "Exports that are waiting or running", open as f64));
    }
    gauges
}

/// The space and the connections that the store uses.
fn store_gauges(app: &App) -> Vec<Gauge> {
    let labelled = |name, help, label, values: Vec<(&'static str, f64)>| Gauge {
        name,
        help,
        values: values.into_iter().map(|(of, value)| (Labels(vec![(label, of.to_owned())]), value)).collect(),
    };
    let StoreUsage { files, database } = app.store.usage();
    let files = files.map(|files| {
        let parts = vec![("tables", files.table_bytes as f64), ("journals", files.journal_bytes as f64)];
        labelled("trefoil_store_bytes", "Length of the files of the store", "part", parts)
    });
    let connections = database.map(|database| {
        let used = (database.open - database.idle.min(database.open)) as f64;
        let states =
            vec![("used", used), ("idle", database.idle as f64), ("awaited", database.waiting as f64)];
        labelled("trefoil_database_connections", "Connections to the database", "state", states)
    });
    let refusal_line = connections.is_some().then(|| {
        let is_refusing = f64::from(u8::from(app.store.refusal().is_some()));
        gauge(
            "trefoil_database_refused",
            "1 while the database lacks something that this node knows",
            is_refusing,
        )
    });
    let heard = app.store.heard_seq().0 as f64;
    let heard = gauge("trefoil_store_heard_sequence", "Last commit that this node has heard of", heard);
    files.into_iter().chain(connections).chain(refusal_line).chain([heard]).collect()
}

/// Counters without labels. Their names get the ending `_total`.
fn counters(app: &App) -> Vec<(&'static str, &'static str, f64)> {
    let questions = app.capacity.questions.counts();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
    let mut counters = vec![
        ("trefoil_questions", "Long terminology questions that ran", count(&questions.asked)),
        (
            "trefoil_questions_refused",
            "Long terminology questions refused by the queue",
            count(&questions.refused),
        ),
        (
            "trefoil_questions_cpu_seconds",
            "CPU time of long terminology questions",
            count(&questions.cpu_us) / 1e6,
        ),
        (
            "trefoil_bucket_request_seconds",
            "Time to the heads of the responses of buckets",
            app.logs.bucket_requests.total_s(),
        ),
        (
            "trefoil_exported_bytes",
            "Bytes of completed exports",
            app.logs.audit.counts().exported_bytes() as f64,
        ),
        (
            "trefoil_trace_spans_dropped",
            "Spans that no collector has received",
            app.logs.traces.dropped() as f64,
        ),
    ];
    if let Some(queue) = app.logs.audit.queue() {
        let DeliveryCounts { sent, rejected, dropped_bytes } = &queue.counts;
        counters.extend([
            ("trefoil_audit_events_sent", "Audit events that reached their destination", count(sent)),
            (
                "trefoil_audit_events_rejected",
                "Audit events that their destination does not keep",
                count(rejected),
            ),
            (
                "trefoil_audit_dropped_bytes",
                "Audit events that were not sent, because too many waited",
                count(dropped_bytes),
            ),
        ]);
    }
    let StoreUsage { files, database } = app.store.usage();
    counters.extend(files.map(|files| {
        ("trefoil_store_compactions", "Merges of files of the store", files.compactions as f64)
    }));
    counters.extend(database.map(|database| {
        ("trefoil_database_round_trips", "Uses of a connection to the database", database.round_trips as f64)
    }));
    counters
}

/// Names and values of labels.
#[derive(Debug)]
struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        use prometheus_client::encoding::EncodeLabel as _;
        self.0.iter().try_for_each(|(name, value)| (*name, value.as_str()).encode(encoder.encode_label()))
    }
}

/// Encodes a counter with labels.
fn encode_counts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl Iterator<Item = (Vec<(&'static str, String)>, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        metric.encode_family(&Labels(labels))?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    Ok(())
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Requests by route, method and class of the status";
        let mut metric =
            encoder.encode_descriptor("trefoil_http_requests", help, None, MetricType::Counter)?;
        for (method, path, counts) in &self.routes {
            // Classes instead of statuses, and only those that occurred: the number of series is bounded.
            for (class, count) in STATUS_CLASSES.iter().zip(counts.statuses).filter(|(_, count)| *count > 0) {
                let status = ("status", (*class).to_owned());
                let labels = Labels(vec![("method", (*method).to_owned()), ("route", path.clone()), status]);
                metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let help = "Time from the request to the head of the response, by route and method";
        let name = "trefoil_http_request_duration_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (method, path, counts) in &self.routes {
            let labels = Labels(vec![("method", (*method).to_owned()), ("route", path.clone())]);
            let count = counts.durations.iter().map(|(_, count)| count).sum();
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                counts.total_s,
                count,
                &counts.durations,
                None,
            )?;
        }
        let label = |name, value: &str| (name, value.to_owned());
        let events = self.events.iter().map(|(event, count)| (vec![label("event", event)], *count));
        let help = "Audited events, such as sign-ins, issued tokens and completed exports";
        encode_counts(&mut encoder, "trefoil_audit_events", help, events)?;
        let attempts = self.throttle.iter().map(|(answer, count)| (vec![label("answer", answer)], *count));
        let help = "Attempts to guess a password or a code, by the answer of the throttle";
        encode_counts(&mut encoder, "trefoil_throttle_attempts", help, attempts)?;
        let requests = self
            .bucket_requests
            .iter()
            .map(|(method, status, count)| (vec![label("method", method), label("status", status)], *count));
        let help = "Requests to buckets by method and class of the status, repetitions included";
        encode_counts(&mut encoder, "trefoil_bucket_requests", help, requests)?;
        let refusals = self
            .refusals
            .iter()
            .map(|(kind, reason, count)| (vec![label("kind", kind), label("reason", reason)], *count));
        let help = "Refused sign-ins, authorization requests and clients, and reused codes and tokens";
        encode_counts(&mut encoder, "trefoil_refusals", help, refusals)?;
        for (name, help, count) in &self.counters {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        for Gauge { name, help, values } in &self.gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in values {
                metric.encode_family(labels)?.encode_gauge(value)?;
            }
        }
        self.process.encode(&mut encoder)
    }
}
