//! The image of the server for container runtimes: an archive in the image layout of the Open Container
//! Initiative (OCI image specification 1.1), written without a container runtime.
//!
//! The image contains the program, the certificate authorities of this machine, the libraries of a program
//! that is not static, and a user without a name in any group. Its root file system can be read-only: only
//! the data folder is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::files::{compress, install, pack, sha256};
use super::platform::Platform;
use super::release::{Programs, Release};
use xtask::workspace::check;

/// User and group of the process.
const USER: &str = "65532:65532";
/// Folder of the data, which is a volume.
const DATA: &str = "var/lib/trefoil";
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Writes `trefoil-VERSION-oci.tar`, with an image for each platform.
pub(super) fn write(release: &Release, programs: &[Programs]) -> Result<()> {
    let Release { dist, version, time, .. } = release;
    let work = dist.join("image");
    let layout = work.join(format!("trefoil-{version}"));
    let mut manifests = Vec::new();
    for Programs { platform, folder } in programs {
        let root = work.join("root");
        fill_root(&root, &folder.join("trefoil"), release.programs_are_static)?;
        let tar = work.join("layer.tar");
        pack_layer(&root, &tar, time)?;
        fs::remove_dir_all(&root)?;
        let diff_id = format!("sha256:{}", sha256(&tar)?);
        compress(&tar)?;
        let layer = work.join("layer.tar.gz");
        let layer = add_blob(&layout, &layer, "application/vnd.oci.image.layer.v1.tar+gzip")?;
        fs::remove_file(work.join("layer.tar.gz"))?;
        let configuration = configuration(&diff_id, platform, version, time)?;
        let configuration =
            add_json(&layout, &work, &configuration, "application/vnd.oci.image.config.v1+json")?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": configuration,
            "layers": [layer],
        });
        let mut manifest = add_json(&layout, &work, &manifest, MANIFEST)?;
        manifest["platform"] = json!({ "os": "linux", "architecture": platform.debian });
        manifests.push(manifest);
    }
    // One descriptor with the name: the image, or the index of the images for several platforms.
    let mut manifest = match manifests.as_slice() {
        [manifest] => manifest.clone(),
        _ => add_json(&layout, &work, &index(&manifests), INDEX)?,
    };
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    fs::write(layout.join("index.json"), index(&[manifest]).to_string())?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    pack(&layout, Path::new("."), &dist.join(format!("trefoil-{version}-oci.tar")), time)?;
    Ok(fs::remove_dir_all(&work)?)
}

fn index(manifests: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests })
}

/// Fills the root folder of the image.
fn fill_root(root: &Path, program: &Path, is_static: bool) -> Result<()> {
    install(program, &root.join("usr/bin/trefoil"), 0o755)?;
    for library in if is_static { Vec::new() } else { libraries(program)? } {
        let relative = library.strip_prefix("/").context("a library has an absolute path")?;
        install(&library, &root.join(relative), 0o755)?;
    }
    let authorities = Path::new("/").join(CERTIFICATES);
    if authorities.exists() {
        install(&authorities, &root.join(CERTIFICATES), 0o644)?;
    }
    for folder in [DATA, "etc", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(root.join("etc/passwd"), "trefoil:x:65532:65532::/var/lib/trefoil:/sbin/nologin\n")?;
    Ok(())
}

/// Packs the root folder as a layer. The data folder belongs to the user of the image; everything else
/// belongs to root and can only be read.
fn pack_layer(root: &Path, layer: &Path, time: &str) -> Result<()> {
    let rest = format!("--exclude=./{DATA}");
    for (owner, content) in [("65532", ["--no-recursion", "-cf", DATA]), ("0", [&rest, "-rf", "."])] {
        let [option, operation, folder] = content;
        check(
            Command::new("tar")
                .args(["--sort=name", "--numeric-owner", "--format=ustar", "--mode=u=rwX,go=rX"])
                .args([format!("--owner={owner}"), format!("--group={owner}"), format!("--mtime=@{time}")])
                .args([option, operation])
                .arg(layer)
                .arg("-C")
                .arg(root)
                .arg(folder),
        )?;
    }
    Ok(())
}

/// The configuration of the image: how a runtime starts the server.
fn configuration(diff_id: &str, platform: &Platform, version: &str, time: &str) -> Result<Value> {
    let created =
        Command::new("date").args(["-u", "-d", &format!("@{time}"), "+%Y-%m-%dT%H:%M:%SZ"]).output()?;
    let created = String::from_utf8(created.stdout)?.trim().to_owned();
    Ok(json!({
        "created": created,
        "architecture": platform.debian,
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": ["/usr/bin/trefoil"],
            "Cmd": ["serve", "--data", format!("/{DATA}"), "--listen", "0.0.0.0:8443"],
            "ExposedPorts": { "8443/tcp": {} },
            "Volumes": { format!("/{DATA}"): {} },
            "WorkingDir": format!("/{DATA}"),
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "trefoil",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    }))
}

/// The libraries that a program needs, and its loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("ldd cannot be started")?;
    let text = String::from_utf8(output.stdout)?;
    let paths: Vec<_> =
        text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    ensure!(!paths.is_empty(), "{} needs no library; ldd printed: {text}", program.display());
    Ok(paths)
}

/// Adds a file to the layout under its digest, and returns its descriptor.
fn add_blob(layout: &Path, file: &Path, media_type: &str) -> Result<Value> {
    let digest = sha256(file)?;
    install(file, &layout.join("blobs/sha256").join(&digest), 0o644)?;
    let size = fs::metadata(file)?.len();
    Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size }))
}

fn add_json(layout: &Path, work: &Path, document: &Value, media_type: &str) -> Result<Value> {
    let file = work.join("document.json");
    fs::write(&file, document.to_string())?;
    add_blob(layout, &file, media_type)
}
