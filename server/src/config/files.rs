//! `[files]`: where the files of exports are kept, and the indexes of releases for other nodes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ::bulk::{BucketRequests, ObjectBucket};
use object_store::ClientConfigKey;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use toml::Spanned;
use url::{Host, Url};

use super::bulk::BulkSection;
use super::documented::{implicit, settings_table};
use super::{ConfigError, ConfigSource};

/// Maximum of `[bulk] file_size`: object stores accept 10,000 parts, and a part has 8 MiB.
const MAX_FILE_SIZE: u64 = 64 << 30;

settings_table! {
    /// Where the files of exports are kept and, if several servers share a database, the indexes of imported
    /// releases. All settings are read at the start.
    pub struct FilesSection {
        /// Bucket of an S3 server, and the beginning of the keys in it: `s3://BUCKET/PREFIX`. Without this
        /// setting, files are kept in the data folder.
        location: Option<Spanned<String>> = None,
        /// URL of the S3 server. Without this setting, `AWS_ENDPOINT_URL`, or AWS in the region.
        endpoint: Option<Spanned<String>> = None,
        /// Region. Without this setting, `AWS_REGION`, or `us-east-1`.
        region: Option<String> = None,
        /// Id of the access key. Without this setting, the credentials are those of the environment: an
        /// access key in the variables of AWS, with a session token if it is temporary, a web identity, a
        /// container or an instance.
        access_key_id: Option<Spanned<String>> = None,
        /// File with the secret of the access key.
        secret_access_key_file: Option<Spanned<PathBuf>> = None,
        /// Environment variable with the secret of the access key.
        secret_access_key_env: Option<Spanned<String>> = None,
        /// The bucket is in the path of the URLs, not in their host.
        path_style: bool = true,
        /// Allow an endpoint with plain HTTP, on loopback addresses only; `AWS_ALLOW_HTTP=true` does so too.
        allow_http: bool = false,
        /// Redirect downloads with a signed URL of `[bulk] signed_url_s` to a signed URL of the bucket, so
        /// that the files do not pass through this server.
        signed_downloads: Spanned<bool> = implicit(false),
    }
}

/// The checked settings of files.
#[derive(Debug)]
pub struct FilesConfig {
    /// The bucket. `None` means the data folder.
    pub bucket: Option<ObjectBucket>,
    /// Access to this and other buckets of the same S3 server.
    pub access: BucketAccess,
    /// The settings without the secret, to detect changes.
    pub description: String,
}

/// Access to the buckets of an S3 server.
#[derive(Clone)]
pub struct BucketAccess {
    builder: AmazonS3Builder,
    /// URL of the server, or why that of the environment cannot be used.
    endpoint: Result<Option<Url>, String>,
    path_style: bool,
    /// The requests to all buckets that are opened with this access.
    pub requests: Arc<BucketRequests>,
}

/// The builder holds credentials, so that it is not printed.
impl fmt::Debug for BucketAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketAccess").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl BucketAccess {
    /// Opens a bucket, or a part of one: `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// Returns why it cannot be opened.
    pub fn location(&self, location: &str) -> Result<ObjectBucket, String> {
        self.open(location, false)
    }

    fn open(&self, location: &str, signs_urls: bool) -> Result<ObjectBucket, String> {
        let wrong = |reason: &str| format!("'{location}' {reason}; write s3://BUCKET/PREFIX");
        let path = location.strip_prefix("s3://").ok_or_else(|| wrong("is not the URL of a bucket"))?;
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if !is_bucket_name(bucket) {
            return Err(wrong("has no valid name of a bucket"));
        }
        let prefix = Path::parse(prefix).map_err(|error| wrong(&format!("has no valid prefix: {error}")))?;
        let mut builder = self.builder.clone().with_bucket_name(bucket);
        if let Some(endpoint) = self.endpoint.as_ref().map_err(Clone::clone)? {
            builder = builder.with_endpoint(match self.path_style {
                true => endpoint.as_str().trim_end_matches('/').to_owned(),
                false => with_bucket(endpoint, bucket)
                    .ok_or_else(|| wrong("cannot be in the host of its endpoint"))?,
            });
        }
        builder = builder.with_virtual_hosted_style_request(!self.path_style);
        ObjectBucket::s3(builder, prefix, ObjectBucket::PATIENCE, signs_urls, self.requests.clone())
            .map_err(|error| wrong(&format!("cannot be opened: {error}")))
    }
}

impl FilesSection {
    pub(super) fn check(
        &self,
        source: &ConfigSource<'_>,
        bulk: &BulkSection,
    ) -> Result<FilesConfig, ConfigError> {
        let mut builder = self.credentials(source)?;
        if self.allow_http {
            builder = builder.with_allow_http(true);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let endpoint = match self.checked_endpoint(source, &builder) {
            // The environment may be meant for other programs if no bucket is used.
            Err(error) if self.endpoint.is_none() && self.location.is_none() => Err(error.to_string()),
            checked => Ok(checked?),
        };
        let requests = Arc::default();
        let access = BucketAccess { builder, endpoint, path_style: self.path_style, requests };
        let Some(location) = &self.location else {
            // A setting of a bucket without a bucket would be ignored silently.
            if *self.signed_downloads.as_ref() {
                let reason = "this setting needs location = \"s3://BUCKET/PREFIX\"";
                return Err(source.value_error(self.signed_downloads.span(), "signed_downloads", reason));
            }
            return Ok(FilesConfig { bucket: None, access, description: self.describe() });
        };
        if *self.signed_downloads.as_ref() && bulk.signed_url_s.is_none() {
            let reason =
                "this setting needs [bulk] signed_url_s, because a client sends no token to another server";
            return Err(source.value_error(self.signed_downloads.span(), "signed_downloads", reason));
        }
        if *bulk.file_size.as_ref() > MAX_FILE_SIZE {
            let reason = format!("a file in a bucket can have up to {MAX_FILE_SIZE} bytes");
            return Err(source.value_error(bulk.file_size.span(), "file_size", reason));
        }
        let bucket = access.open(location.as_ref(), *self.signed_downloads.as_ref());
        let bucket = bucket.map_err(|reason| source.value_error(location.span(), "location", reason))?;
        Ok(FilesConfig { bucket: Some(bucket), access, description: self.describe() })
    }

    /// A builder with the credentials of this table, or those of the environment.
    fn credentials(&self, source: &ConfigSource<'_>) -> Result<AmazonS3Builder, ConfigError> {
        let secret = source.read_secret(
            "secret_access_key",
            self.secret_access_key_file.as_ref(),
            self.secret_access_key_env.as_ref(),
        )?;
        match (&self.access_key_id, secret) {
            (None, None) => Ok(AmazonS3Builder::from_env()),
            (Some(id), Some(secret)) => {
                Ok(AmazonS3Builder::new().with_access_key_id(id.as_ref()).with_secret_access_key(secret))
            }
            (Some(id), None) => {
                let reason = "set secret_access_key_file or secret_access_key_env too";
                Err(source.value_error(id.span(), "access_key_id", reason))
            }
            (None, Some(_)) => {
                let file = self.secret_access_key_file.as_ref().map(Spanned::span);
                let span =
                    file.or(self.secret_access_key_env.as_ref().map(Spanned::span)).unwrap_or_default();
                Err(source.value_error(span, "secret_access_key", "set access_key_id too"))
            }
        }
    }

    /// The endpoint of this table or of the environment. Plain HTTP is allowed on loopback addresses only.
    fn checked_endpoint(
        &self,
        source: &ConfigSource<'_>,
        builder: &AmazonS3Builder,
    ) -> Result<Option<Url>, ConfigError> {
        let of_environment = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let (span, text) = match (&self.endpoint, of_environment) {
            (Some(endpoint), _) => (Some(endpoint.span()), endpoint.as_ref().clone()),
            (None, Some(endpoint)) => (None, endpoint),
            (None, None) => return Ok(None),
        };
        let wrong = |reason: &str| match &span {
            Some(span) => source.value_error(span.clone(), "endpoint", format!("'{text}' {reason}")),
            None => ConfigError::Setting(format!("AWS_ENDPOINT_URL: '{text}' {reason}")),
        };
        let allow_http = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
        let allows_http = builder.get_config_value(&allow_http).is_some_and(|value| value == "true");
        let url = Url::parse(&text).map_err(|_| wrong("is not a URL such as https://s3.example.org"))?;
        let is_loopback = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(wrong("must have no credentials and no query"));
        }
        match url.scheme() {
            "https" => Ok(Some(url)),
            "http" if allows_http && is_loopback => Ok(Some(url)),
            "http" if is_loopback => Err(wrong("needs allow_http = true in [files], or AWS_ALLOW_HTTP=true")),
            _ => Err(wrong("must begin with https://; plain HTTP is allowed on loopback addresses only")),
        }
    }

    fn describe(&self) -> String {
        let text = |value: &Option<Spanned<String>>| value.as_ref().map(|value| value.as_ref().clone());
        format!(
            "{:?} {:?} {:?} {:?} {} {} {}",
            text(&self.location),
            text(&self.endpoint),
            self.region,
            text(&self.access_key_id),
            self.path_style,
            self.allow_http,
            self.signed_downloads.as_ref()
        )
    }
}

/// `true` for a name that S3 accepts: 3 to 63 lower-case letters, digits, dots and hyphens.
fn is_bucket_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    let ends = [name.bytes().next(), name.bytes().last()];
    (3..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && ends.iter().flatten().all(|byte| byte.is_ascii_alphanumeric())
}

/// The endpoint with the bucket in its host. An IP address cannot have one.
fn with_bucket(endpoint: &Url, bucket: &str) -> Option<String> {
    let Some(Host::Domain(name)) = endpoint.host() else { return None };
    let host = format!("{bucket}.{name}");
    let mut url = endpoint.clone();
    url.set_host(Some(&host)).ok()?;
    Some(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::checks::load;
    use crate::config::restart_settings;

    #[test]
    fn files_can_be_kept_in_a_bucket() {
        assert!(load("").unwrap().files.bucket.is_none());
        let text = "[files]\nlocation = \"s3://bucket/a/b\"\nendpoint = \"https://s3.example\"\n\
             access_key_id = \"k\"\nsecret_access_key_env = \"HOME\"\npath_style = false\nsigned_downloads = true\n\
             [bulk]\nsigned_url_s = 60\n";
        let config = load(text).unwrap();
        let bucket = config.files.bucket.as_ref().unwrap();
        assert_eq!((bucket.prefix.as_ref(), bucket.signer.is_some()), ("a/b", true));
        let secret = std::env::var("HOME").unwrap();
        let text = format!("{config:?} {:?}", restart_settings::RestartSettings::of(&config));
        assert!(text.contains("s3://bucket/a/b") && !text.contains(&format!("\"{secret}\"")), "{text}");
    }
}
