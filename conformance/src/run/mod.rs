//! Carries out cases and tells listeners what came of them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`vars`] | variables in texts |
//! | [`matcher`] | what a row expects against what came back |
//! | [`judge`] | one answer against one expectation |
//! | [`dpop`] | proofs, right and wrong |
//! | [`exchange`] | requests and answers, and both as texts |
//! | [`source`] | parts of an answer |

pub mod dpop;
pub mod exchange;
pub mod judge;
pub mod matcher;
pub mod source;
pub mod vars;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Method, header};
use serde_json::Value;
use url::Url;

use crate::spec::Spec;
use crate::spec::row::{Case, Request, Step, Values};
use crate::world::givens::{self, Scene};
use crate::world::{Trouble, World};
use exchange::{Answer, Sent};
use matcher::Difference;
use vars::{UnknownVariable, Vars};

/// How many cases run at the same time.
const AT_ONCE: usize = 8;
/// How often a request is repeated at most, and how long apart.
const POLLS: usize = 400;
const POLL_PAUSE: Duration = Duration::from_millis(25);

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All is as the row says.
    Pass,
    /// Something is not.
    Fail(Failure),
    /// It fails, and `specs/gaps.toml` says why.
    Gap(String),
    /// It could not be tried on this target.
    Skip(String),
}

/// What was not as the row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Number of the step, from 1; 0 before the first.
    pub step: usize,
    /// The request as a curl line.
    pub request: String,
    /// The answer.
    pub answer: String,
    /// What differs.
    pub differences: Vec<Difference>,
}

impl Failure {
    fn before(difference: impl Into<String>) -> Self {
        Self { step: 0, request: String::new(), answer: String::new(), differences: vec![difference.into()] }
    }
}

/// A case that was run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its id.
    pub id: String,
    /// Its section.
    pub section: String,
    /// The requirements that it tries.
    pub covers: Vec<String>,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// How many of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Known to fail.
    pub gaps: usize,
    /// Not tried.
    pub skipped: usize,
}

impl Summary {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Pass => self.passed += 1,
            Verdict::Fail(_) => self.failed += 1,
            Verdict::Gap(_) => self.gaps += 1,
            Verdict::Skip(_) => self.skipped += 1,
        }
    }
}

/// What happens in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// It begins.
    Start {
        /// Base URL of the target.
        target: &'a str,
        /// How many cases there are.
        cases: usize,
    },
    /// A case has ended. Cases are told in the order of the tables.
    Case(&'a Outcome),
    /// It has ended.
    End(Summary),
}

/// Listens to a run.
pub trait Listener {
    /// Told of everything that happens.
    fn hear(&mut self, event: &Event<'_>);
}

/// Runs cases, several at a time, and tells the listeners.
pub async fn run(
    world: &World,
    spec: &Spec,
    cases: &[&Case],
    listeners: &mut [Box<dyn Listener>],
) -> Summary {
    let mut tell = |event: &Event<'_>| listeners.iter_mut().for_each(|listener| listener.hear(event));
    tell(&Event::Start { target: &world.target.base_url, cases: cases.len() });
    let mut summary = Summary::default();
    let mut running =
        futures_util::stream::iter(cases.iter().map(|case| outcome(world, spec, case))).buffered(AT_ONCE);
    while let Some(outcome) = running.next().await {
        summary.count(&outcome.verdict);
        tell(&Event::Case(&outcome));
    }
    tell(&Event::End(summary));
    summary
}

/// Runs one case.
pub async fn outcome(world: &World, spec: &Spec, case: &Case) -> Outcome {
    let started = Instant::now();
    let verdict = weigh(try_case(world, case).await, spec.gap(&case.id));
    Outcome {
        id: case.id.clone(),
        section: case.section().to_owned(),
        covers: case.covers.clone(),
        verdict,
        took: started.elapsed(),
    }
}

/// A failure is borne where a gap gives its reason; a gap that passes is a failure of the table.
fn weigh(tried: Result<(), Verdict>, gap: Option<&str>) -> Verdict {
    match (tried, gap) {
        (Ok(()), None) => Verdict::Pass,
        (Ok(()), Some(_)) => {
            Verdict::Fail(Failure::before("this passes now: take it out of specs/gaps.toml"))
        }
        (Err(Verdict::Fail(_)), Some(reason)) => Verdict::Gap(reason.to_owned()),
        (Err(verdict), _) => verdict,
    }
}

async fn try_case(world: &World, case: &Case) -> Result<(), Verdict> {
    let mut scene = Scene::new(world);
    for given in &case.given {
        givens::make(world, given, &mut scene).await.map_err(|trouble| match trouble {
            Trouble::Lacking(reason) => Verdict::Skip(reason),
            other => Verdict::Fail(Failure::before(format!("given '{given}': {other}"))),
        })?;
    }
    let wrong = |error: UnknownVariable| Verdict::Fail(Failure::before(error.to_string()));
    for (index, step) in case.steps().iter().enumerate() {
        let sent =
            build(&step.request, &scene.vars).map_err(|error| Verdict::Fail(Failure::before(error)))?;
        let answered = exchange(world, &mut scene, &sent, step.request.poll).await;
        let failure = |answer: String, differences| {
            Verdict::Fail(Failure {
                step: index + 1,
                request: exchange::curl(&sent),
                answer: answer.clone(),
                differences,
            })
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(trouble) => return Err(failure(String::new(), vec![trouble.to_string()])),
        };
        let mut differences =
            judge::answer(&step.expect, &answer, &scene.vars, keys(world, &scene)).map_err(wrong)?;
        capture(step, &answer, &mut scene.vars, &mut differences);
        if !differences.is_empty() {
            return Err(failure(exchange::shown(&answer), differences));
        }
    }
    Ok(())
}

/// The keys of the server that answers.
fn keys<'a>(world: &'a World, scene: &'a Scene) -> &'a Value {
    scene.own.as_ref().map_or(&world.target.keys, |own| &own.1.keys)
}

/// Keeps the named parts of an answer.
fn capture(step: &Step, answer: &Answer, vars: &mut Vars, differences: &mut Vec<Difference>) {
    for (name, source) in &step.capture {
        match source::find(answer, source) {
            Some(value) => vars.set(name, value),
            None => differences.push(format!("capture {name}: the answer has no {source}")),
        }
    }
}

/// Sends as a browser does, with the cookies of the scene, which it keeps up; again while the status
/// `poll` comes back.
///
/// # Errors
/// [`Trouble`]: no answer, or `poll` for ever.
pub async fn exchange(
    world: &World,
    scene: &mut Scene,
    sent: &Sent,
    poll: Option<u16>,
) -> Result<Answer, Trouble> {
    for _ in 0..POLLS {
        let target = scene.own.as_ref().map_or(&world.target, |own| &own.1);
        let answer = target.send(sent, &mut scene.cookies).await?;
        if Some(answer.status.as_u16()) != poll {
            return Ok(answer);
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
    Err(Trouble::Failed(format!("the status was still {} after {POLLS} requests", poll.unwrap_or_default())))
}

/// Puts the variables into a request.
///
/// # Errors
/// What the row says wrong.
pub fn build(request: &Request, vars: &Vars) -> Result<Sent, String> {
    let fill = |text: &str| vars.fill(text).map_err(|error| error.to_string());
    let method = request.method.as_deref().unwrap_or("GET");
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| format!("'{method}' is no method"))?;
    let path = fill(&request.path)?;
    let address = if path.starts_with('/') {
        format!("{}{path}", vars.text("base_url").map_err(|e| e.to_string())?)
    } else {
        path
    };
    let mut url = Url::parse(&address).map_err(|error| format!("'{address}' is no address: {error}"))?;
    if !request.query.is_empty() {
        let mut pairs = url.query_pairs_mut();
        for (name, value) in &request.query {
            pairs.append_pair(name, &fill(value)?);
        }
    }
    let mut headers = http::HeaderMap::new();
    for (name, values) in &request.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("'{name}' is no header"))?;
        let values = match values {
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        };
        for value in values {
            headers.append(name.clone(), header_value(&fill(value)?)?);
        }
    }
    if let Some(token) = &request.bearer {
        headers.insert(header::AUTHORIZATION, header_value(&format!("Bearer {}", fill(token)?))?);
    }
    if let Some(proof) = &request.dpop {
        for (name, value) in dpop::headers(proof, &method, &url, vars)? {
            headers.append(name, header_value(&value)?);
        }
    }
    let (body, media_type) = body(request, vars)?;
    let media_type = match &request.content_type {
        Some(named) => Some(named.as_str()).filter(|named| !named.is_empty()),
        None => media_type,
    };
    if let Some(media_type) = media_type {
        headers.insert(header::CONTENT_TYPE, header_value(media_type)?);
    }
    Ok(Sent { method, url, headers, body })
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("'{text}' cannot stand in a header"))
}

/// The body and the media type that it has where the row names none.
fn body(request: &Request, vars: &Vars) -> Result<(Bytes, Option<&'static str>), String> {
    let unknown = |error: UnknownVariable| error.to_string();
    if let Some(form) = &request.form {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form {
            text.append_pair(name, &vars.fill(value).map_err(unknown)?);
        }
        return Ok((text.finish().into(), Some("application/x-www-form-urlencoded")));
    }
    if let Some(json) = &request.json {
        let json: Value = vars.fill_json(json).map_err(unknown)?;
        return Ok((json.to_string().into(), Some("application/fhir+json")));
    }
    if let Some(text) = &request.body {
        return Ok((vars.fill(text).map_err(unknown)?.into(), None));
    }
    if let Some(filled) = &request.filled {
        let text = format!("{}{}{}", filled.before, filled.repeat.repeat(filled.times), filled.after);
        return Ok((text.into(), None));
    }
    Ok((Bytes::new(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_bears_a_failure_and_nothing_else() {
        let fail = || Err(Verdict::Fail(Failure::before("x")));
        assert_eq!(weigh(Ok(()), None), Verdict::Pass);
        assert_eq!(weigh(fail(), Some("because")), Verdict::Gap("because".to_owned()));
        assert!(matches!(weigh(fail(), None), Verdict::Fail(_)));
        assert!(matches!(weigh(Ok(()), Some("because")), Verdict::Fail(_)));
        let skip = || Verdict::Skip("no profile".to_owned());
        assert_eq!(weigh(Err(skip()), Some("because")), skip());
    }

    #[test]
    fn requests_are_put_together() {
        let mut vars = Vars::default();
        vars.set("base_url", "https://a.example");
        vars.set("token", "t1");
        let request = r#"method = "POST"
            path = "/x?a=1"
            query = { b = "2 3" }
            bearer = "$token"
            form = { c = "ä" }"#;
        let sent = build(&toml::from_str(request).unwrap(), &vars).unwrap();
        assert_eq!(sent.url.as_str(), "https://a.example/x?a=1&b=2+3");
        assert_eq!(sent.headers["authorization"], "Bearer t1");
        assert_eq!(sent.headers["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(sent.body, "c=%C3%A4");
        let unknown = build(&toml::from_str(r#"path = "$nobody""#).unwrap(), &vars).unwrap_err();
        assert_eq!(unknown, "there is no variable '$nobody'");
    }
}
