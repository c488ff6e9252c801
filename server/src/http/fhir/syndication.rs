//! The feed of the imported releases, from which other servers of this program import (`trefoil import
//! --feed`), and their files. Everyone who may read all code systems may read them, with a token: many
//! publishers license their releases to persons.

use ::terminology::IndexDescription;
use fhir::{IssueCode, instant};
use http::{HeaderValue, Method, StatusCode, header};
use identity::model::scope::ScopePermissions;
use terminology_import::syndication::{FeedEntry, FeedFile, INDEX_CATEGORY, PublishedEntry, PublishedFeed};
use warp::Reply as _;

use super::access;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::range::FilePart;
use crate::http::reply::{self, Response};
use crate::node::release_files::ReleaseFile;

/// GET {fhir_base}/syndication.xml
pub async fn read_feed(context: &RequestContext) -> Result<Response, Problem> {
    access::require_all(context, "CodeSystem", ScopePermissions::GET).await?;
    let files = match &context.app.release_files {
        Some(files) => files.list().await.map_err(bulk::FileError::from)?,
        None => Vec::new(),
    };
    let url = format!("{}/syndication.xml", context.app.address.fhir_base);
    let updated = files.iter().map(|file| file.imported).max().unwrap_or(context.now);
    let name = context.app.settings().brand.name.clone();
    let feed = PublishedFeed {
        url,
        title: format!("Releases of code systems on {name}"),
        author: name,
        updated: instant::format(updated),
        entries: files.into_iter().filter_map(entry).collect(),
    };
    let xml = feed.to_xml().map_err(bulk::FileError::from)?;
    let response = reply::body(StatusCode::OK, "application/atom+xml", xml);
    Ok(reply::with_static(response, header::CACHE_CONTROL, "private, no-cache"))
}

/// The entry of a release; `None` if it has no version, which an entry must have.
fn entry(file: ReleaseFile) -> Option<PublishedEntry> {
    let IndexDescription { url, version, title } = file.description;
    let version = version?;
    // In SNOMED CT, a version begins with the URI of its edition, which is the item.
    let edition = version.rsplit_once("/version/").map(|(edition, _)| edition.to_owned());
    let identifier = edition.filter(|edition| edition.starts_with(&url)).unwrap_or(url);
    let entry = FeedEntry {
        title: title.unwrap_or_else(|| identifier.clone()),
        category: INDEX_CATEGORY.to_owned(),
        identifier,
        version,
        file: Some(FeedFile {
            href: format!("syndication/{}", file.id),
            length: Some(file.length),
            sha256: Some(file.sha256),
            md5: None,
        }),
        dependencies: Vec::new(),
    };
    Some(PublishedEntry { entry, updated: instant::format(file.imported) })
}

/// GET and HEAD {fhir_base}/syndication/{release}
pub async fn download_release(context: &RequestContext, release: String) -> Result<Response, Problem> {
    access::require_all(context, "CodeSystem", ScopePermissions::GET).await?;
    let file = match &context.app.release_files {
        Some(files) => files.open(release.clone()).await.map_err(bulk::FileError::from)?,
        None => None,
    };
    let Some(ReleaseFile { file, length, sha256, .. }) = file else {
        let base = &context.app.address.fhir_base;
        let text = format!("no release has the id '{release}'; {base}/syndication.xml lists all releases");
        return Err(Problem::fhir(StatusCode::NOT_FOUND, IssueCode::NotFound, text));
    };
    let etag = format!("\"{sha256}\"");
    if context.has_version(&etag) {
        return Ok(described(reply::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    let part = FilePart::select(&context.method, &context.headers, &etag, length);
    let part = part.map_err(|response| described(response, &etag))?;
    let response = match context.method == Method::HEAD {
        true => reply::empty(StatusCode::OK),
        false => warp::reply::stream(context.app.bulk.stream_file(file, part.range.clone())?).into_response(),
    };
    Ok(described(part.describe(response), &etag))
}

/// Adds the headers of every response about the file of a release.
fn described(mut response: Response, etag: &str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    reply::with(response, header::ETAG, etag)
}
