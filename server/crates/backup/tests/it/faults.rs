//! Damaged, missing and interrupted backups and restores are refused, and say why.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use jiff::SignedDuration;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStoreExt as _, path::Path};
use store::{Store, Versions as _};
use tempfile::TempDir;
use trefoil_backup::{
    Attachment, AttachmentTarget, BackupLocation, BackupOptions, CopiedStore, Manifest, RestoreSelection,
    StorePurpose, Unfinished, copy_store, remove_old, unfinished, verify,
};

use crate::{BASE, at, back_up, key, put, restore, selection, write};

/// A location with a full backup and one that follows it.
async fn two_backups() -> (TempDir, BackupLocation, [String; 2]) {
    let store = Store::memory();
    let folder = TempDir::new().unwrap();
    let location = BackupLocation::folder(folder.path(), true).unwrap();
    write(&store, 0, Some("first"), at(0)).await;
    put(&store, "k", "v", at(0)).await;
    let first = back_up(&store, &location, false, at(1)).await;
    write(&store, 1, Some("second"), at(2)).await;
    let second = back_up(&store, &location, false, at(3)).await;
    assert_eq!(second.follows.as_ref(), Some(&first.id));
    (folder, location, [first.id, second.id])
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_any_object_is_found() {
    let (folder, location, [first, second]) = two_backups().await;
    let sound = verify(&location, &RestoreSelection::default(), &mut |_| {}).await.unwrap();
    assert_eq!(sound.backup.id, second);
    assert_eq!(sound.content.unwrap().versions, 2);
    let objects = [
        format!("{first}/log-00001.gz"),
        format!("{second}/log-00001.gz"),
        format!("{second}/ledger-00001.gz"),
    ];
    for object in objects {
        let path = folder.path().join(&object);
        let whole = fs::read(&path).unwrap();
        for damaged in
            [whole[..whole.len() - 1].to_vec(), [&whole[..20], b"x", &whole[21..]].concat(), Vec::new()]
        {
            fs::write(&path, damaged).unwrap();
            let verified = verify(&location, &RestoreSelection::default(), &mut |_| {}).await.unwrap();
            let error = verified.content.unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "{object} is damaged: its SHA-256 differs from that of the manifest; use another backup"
                )
            );
            let target = Store::memory();
            restore(&location, RestoreSelection::default(), &target).await.unwrap_err();
            // A store that was restored in part is not used.
            assert!(matches!(unfinished(&target, at(9)).await.unwrap(), Some(Unfinished::Incomplete { .. })));
            let again =
                restore(&location, RestoreSelection::default(), &target).await.unwrap_err().to_string();
            assert!(again.contains("whose transfer did not end"), "{again}");
        }
        fs::remove_file(&path).unwrap();
        let verified = verify(&location, &RestoreSelection::default(), &mut |_| {}).await.unwrap();
        assert!(verified.content.unwrap_err().to_string().starts_with("failed to read "));
        fs::write(&path, whole).unwrap();
    }
    // Without its manifest, a backup is none, and what follows it cannot be restored.
    fs::remove_file(folder.path().join(&first).join("manifest.json")).unwrap();
    let error =
        restore(&location, RestoreSelection::default(), &Store::memory()).await.unwrap_err().to_string();
    assert_eq!(error, format!("the backup {second} needs the backup {first}, which is missing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_selection_is_explained() {
    let (_folder, location, [first, second]) = two_backups().await;
    let error =
        async |selection| restore(&location, selection, &Store::memory()).await.unwrap_err().to_string();
    let name = location.name();
    let unknown = selection(Some("20260101T000000000Z".to_owned()), None);
    assert_eq!(
        error(unknown).await,
        format!("{name} contains no backup 20260101T000000000Z; the last one is {second}")
    );
    let early = selection(None, Some(at(-5)));
    assert!(error(early).await.contains("contains no backup from before"));
    let late = selection(None, Some(at(99)));
    assert!(error(late).await.starts_with("no backup follows that of"));
    let empty = TempDir::new().unwrap();
    let none = BackupLocation::folder(empty.path(), false).unwrap();
    let none = restore(&none, RestoreSelection::default(), &Store::memory()).await.unwrap_err().to_string();
    assert!(none.ends_with("contains no backup"), "{none}");
    assert!(BackupLocation::folder(&empty.path().join("absent"), false).is_err());

    let used = Store::memory();
    put(&used, "k", "v", at(0)).await;
    let occupied = restore(&location, RestoreSelection::default(), &used).await.unwrap_err().to_string();
    assert_eq!(occupied, "the target is not empty; choose a new folder or an empty database");
    assert_eq!(unfinished(&used, at(0)).await.unwrap(), None);
    let selected = selection(Some(first), None);
    let target = Store::memory();
    restore(&location, selected, &target).await.unwrap();
    assert_eq!(target.last_seq().await.unwrap().0, 1);
    assert_eq!(unfinished(&target, at(0)).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_chooses_the_store_that_fits() {
    let folder = TempDir::new().unwrap();
    let location = BackupLocation::folder(&folder.path().join("backups"), true).unwrap();
    let open = |name: &str| Store::open(&folder.path().join(name)).unwrap();
    let [production, drill] = ["production", "drill"].map(open);
    write(&production, 0, Some("a"), at(0)).await;
    back_up(&production, &location, true, at(10)).await;
    write(&production, 0, Some("b"), at(20)).await;
    back_up(&production, &location, false, at(30)).await;
    let choose = async |moment: Option<i64>, store: Option<String>| {
        let selection = RestoreSelection { at: moment.map(at), store, ..RestoreSelection::default() };
        match verify(&location, &selection, &mut |_| {}).await {
            Ok(verified) => verified.backup.store_id,
            Err(error) => error.to_string(),
        }
    };
    // A drill with a backup of its own, between those of production.
    let purpose = |purpose| RestoreSelection { purpose, ..RestoreSelection::default() };
    restore(&location, purpose(StorePurpose::Drill), &drill).await.unwrap();
    back_up(&drill, &location, true, at(15)).await;
    let several = choose(None, None).await;
    assert!(several.contains("several stores") && several.contains("--store-id"), "{several}");
    assert_eq!(choose(None, Some(drill.id())).await, drill.id());
    assert_eq!(choose(Some(20), None).await, production.id(), "only its backups tell the moment");
    assert_eq!(choose(Some(12), None).await, production.id());
    assert!(choose(Some(40), None).await.contains("several stores"));
    assert!(choose(None, Some("other".to_owned())).await.contains("no backup of the store other"));
    fs::remove_dir_all(folder.path().join("backups").join(Manifest::id_at(at(15)))).unwrap();

    // A successor takes the place of the earlier store, and another one that of the first.
    let mut last = production.id();
    for (name, time) in [("second", 50), ("third", 60)] {
        let successor = open(name);
        let report = restore(&location, purpose(StorePurpose::Successor), &successor).await.unwrap();
        assert_eq!(report.backup.store_id, last);
        let result = back_up(&successor, &location, true, at(time)).await;
        assert_eq!(result.continues.last(), Some(&production.id()));
        assert_eq!(choose(None, None).await, successor.id());
        assert_eq!(choose(Some(20), None).await, production.id());
        last = successor.id();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_of_a_copy_is_marked() {
    let (source, target) = (Store::memory(), Store::memory());
    write(&source, 0, Some("x"), at(0)).await;
    copy_store(
        CopiedStore { store: &source, name: "file:a", fhir_base: BASE, left_out: &[] },
        (&target, "postgres://b"),
        false,
        async || Ok(()),
        async || Ok(()),
        at(1),
        &mut |_| {},
    )
    .await
    .unwrap();
    let moved = Unfinished::Moved { to: "postgres://b".to_owned() };
    assert_eq!(unfinished(&source, at(2)).await.unwrap(), Some(moved));
    assert_eq!(unfinished(&target, at(2)).await.unwrap(), None);
}

/// A backup of a new store, or of one that went back in time, is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_follows_only_one_of_the_same_store() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let [a, b] = folders.each_ref().map(|folder| Store::open(folder.path()).unwrap());
    let folder = TempDir::new().unwrap();
    let location = BackupLocation::folder(folder.path(), true).unwrap();
    write(&a, 0, Some("x"), at(0)).await;
    let first = back_up(&a, &location, false, at(0)).await;
    assert_eq!(back_up(&b, &location, false, at(1)).await.follows, None);
    assert_eq!(back_up(&a, &location, false, at(2)).await.follows, Some(first.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_kept_once_and_restored() {
    let (from, to, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let location = BackupLocation::folder(folder.path(), true).unwrap();
    fs::write(from.path().join("a"), "content").unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(from.path()).unwrap());
    let store = Store::memory();
    for round in 0..2 {
        let meta = objects.head(&Path::from("a")).await.unwrap();
        let attachment = Attachment { name: "exports/a".to_owned(), objects: objects.clone(), meta };
        let gone = Attachment {
            name: "exports/gone".to_owned(),
            meta: object_store::ObjectMeta { location: Path::from("gone"), ..attachment.meta.clone() },
            ..attachment.clone()
        };
        let attachments = async || Ok(vec![attachment, gone]);
        let options = BackupOptions::default();
        let result =
            trefoil_backup::back_up(&store, &location, options, attachments, at(round), &mut |_| {}).await;
        assert_eq!(result.unwrap().files.len(), 1);
    }
    assert_eq!(fs::read_dir(folder.path().join("files")).unwrap().count(), 1);
    // Only the owner may read backups.
    for entry in walk(folder.path()) {
        let mode = fs::metadata(&entry).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if entry.is_dir() { 0o700 } else { 0o600 }, "{}", entry.display());
    }
    let objects = Arc::new(LocalFileSystem::new_with_prefix(to.path()).unwrap());
    let target = |_: &_| Some(AttachmentTarget { objects: objects.clone(), path: Path::from("there/a") });
    trefoil_backup::restore(
        &location,
        &RestoreSelection::default(),
        &Store::memory(),
        target,
        async |_| Ok(()),
        at(9),
        &mut |_| {},
    )
    .await
    .unwrap();
    assert_eq!(fs::read_to_string(to.path().join("there/a")).unwrap(), "content");
    // A file whose content differs from its name is not restored.
    let object = fs::read_dir(folder.path().join("files")).unwrap().next().unwrap().unwrap().path();
    fs::write(object, "c0ntent").unwrap();
    let damaged = restore_into(&location, &to).await;
    assert!(damaged.contains("its SHA-256 differs from its name"), "{damaged}");
    assert!(!to.path().join("damaged").exists());
}

/// All files and folders below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| {
        let inside = if path.is_dir() { walk(&path) } else { Vec::new() };
        [vec![path], inside].concat()
    };
    entries.flat_map(below).collect()
}

async fn restore_into(location: &BackupLocation, folder: &TempDir) -> String {
    let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let target = |_: &_| Some(AttachmentTarget { objects: objects.clone(), path: Path::from("damaged") });
    let store = Store::memory();
    let selection = RestoreSelection::default();
    trefoil_backup::restore(location, &selection, &store, target, async |_| Ok(()), at(9), &mut |_| {})
        .await
        .unwrap_err()
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_backups_are_removed_in_chains() {
    let store = Store::memory();
    let folder = TempDir::new().unwrap();
    let location = BackupLocation::folder(folder.path(), true).unwrap();
    let day = SignedDuration::from_hours(24);
    let mut ids = Vec::new();
    // Full backups on days 0, 3 and 6.
    for number in 0..8 {
        let now = at(0) + day * number;
        write(&store, 0, Some(&number.to_string()), now).await;
        ids.push(back_up(&store, &location, number % 3 == 0, now).await.id);
    }
    let now = at(0) + day * 8;
    let keep = async |days: i32| remove_old(&location, &[store.id()], day * days, now).await.unwrap();
    assert_eq!(keep(6).await, Vec::<String>::new());
    // The last backup of the first chain is as old as six days.
    assert_eq!(keep(5).await, [ids[2].clone(), ids[1].clone(), ids[0].clone()]);
    assert_eq!(keep(0).await, [ids[5].clone(), ids[4].clone(), ids[3].clone()]);
    assert_eq!(keep(0).await, Vec::<String>::new());
    let target = Store::memory();
    restore(&location, RestoreSelection::default(), &target).await.unwrap();
    assert_eq!(target.last_seq().await.unwrap().0, 8);
}

/// Without its key a backup says nothing, and with a key no other backup is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_backup_needs_its_key() {
    let (from, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let plain = BackupLocation::folder(folder.path(), true).unwrap();
    let sealed = plain.clone().with_key(Some(key(1)));
    let store = Store::memory();
    write(&store, 0, Some("Confidential"), at(0)).await;
    put(&store, "user/ada", "Confidential", at(0)).await;
    fs::write(from.path().join("a"), "Confidential").unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(from.path()).unwrap());
    let meta = objects.head(&Path::from("a")).await.unwrap();
    let attachment = Attachment { name: "exports/a".to_owned(), objects: objects.clone(), meta };
    let make = async |location: &BackupLocation, now| {
        let attachments = async || Ok(vec![attachment.clone()]);
        let options = BackupOptions::default();
        trefoil_backup::back_up(&store, location, options, attachments, now, &mut |_| {}).await.unwrap()
    };
    let first = make(&sealed, at(1)).await;
    assert_eq!(first.key_id.as_deref(), Some(key(1).id()));
    // Nothing of the content can be read.
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let mut text = bytes.clone();
            let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
            // Sealed bytes are no gzip.
            drop(std::io::Read::read_to_end(&mut decoder, &mut text));
            assert!(!text.windows(12).any(|part| part == b"Confidential"), "{}", path.display());
        }
    }
    let error = async |location: &BackupLocation| {
        restore(location, selection(None, None), &Store::memory()).await.unwrap_err().to_string()
    };
    assert!(error(&plain).await.ends_with("name its file"));
    assert!(error(&plain.clone().with_key(Some(key(2)))).await.contains("and the given one is"));
    let verified = verify(&sealed, &selection(None, None), &mut |_| {}).await.unwrap();
    assert_eq!(verified.content.unwrap().files, 1);

    // The next one follows, and one without the key does not.
    assert_eq!(make(&sealed, at(2)).await.follows, Some(first.id.clone()));
    let open = make(&plain, at(3)).await;
    assert_eq!((open.follows, open.key_id), (None, None));
    assert!(error(&sealed).await.contains("is not encrypted, so that it could be anyone's"));
    restore(&plain, selection(None, None), &Store::memory()).await.unwrap();

    // A changed manifest is noticed although it can be read.
    let manifest = folder.path().join(&first.id).join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"seq\": 1", "\"seq\": 0")).unwrap();
    let error =
        restore(&sealed, selection(Some(first.id), None), &Store::memory()).await.unwrap_err().to_string();
    assert!(error.contains("its tag is not that of the key"), "{error}");
}
