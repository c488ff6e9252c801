//! The memory that this process may use: that of the machine, or less if a control group limits it. The
//! budgets for request bodies and answers are parts of it.
//!
//! A process belongs to one group of version 2 of the control groups, or to one group for memory of version
//! 1, or both. Each ancestor can have a lower limit. In a container the root of the mounted tree may be the
//! group of the container itself, and the path in `/proc/self/cgroup` may then name folders that do not
//! exist; the limits that can be read count.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::environment;

/// The largest part of the memory for each of the two budgets: the store, the terminology, password hashes
/// and connections need the rest.
const BUDGET_SHARE: u64 = 5;

/// Memory for each open connection with small buffers, in bytes.
const CONNECTION_BYTES: u64 = 128 << 10;

/// Memory below which freed memory is returned to the system at once.
const SMALL: u64 = 1 << 30;

/// With little memory, starts the program again in the same process, with an allocator that returns freed
/// memory to the system at once. A large request leaves its size behind otherwise, for each thread that
/// processed it.
pub fn return_memory_at_once() {
    if environment::has_purge_delay() || memory_limit().is_none_or(|limit| limit >= SMALL) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut again = Command::new(program);
    let error = again.args(std::env::args_os().skip(1)).env(environment::PURGE_DELAY, "0").exec();
    eprintln!(
        "warning: the allocator keeps freed memory, because the program cannot be started again: {error}"
    );
}

/// The memory that this process may use, in bytes. `None` if the system does not tell.
pub fn memory_limit() -> Option<u64> {
    memory_limit_below(Path::new("/"))
}

/// The budget of `configured` bytes, or the part of the memory for one budget if that is less.
pub fn limited_budget(configured: usize, memory: Option<u64>) -> usize {
    let share = memory.map_or(u64::MAX, |memory| memory / BUDGET_SHARE);
    configured.min(usize::try_from(share).unwrap_or(usize::MAX))
}

/// The number of connections for which a fifth of the memory suffices.
pub fn connections(memory: Option<u64>) -> usize {
    let count = memory.map_or(u64::MAX, |memory| memory / BUDGET_SHARE / CONNECTION_BYTES);
    usize::try_from(count).unwrap_or(usize::MAX).max(16)
}

/// The HTTP/2 windows of a stream and of a connection in bytes. Bodies that wait for their memory fill their
/// streams, and must not stop the body that is being read: sixteen of them fit into the connection.
pub fn http2_windows(memory: Option<u64>) -> (u32, u32) {
    let connection = memory.map_or(MAX_WINDOW, |memory| memory / 256).clamp(MIN_WINDOW, MAX_WINDOW);
    let connection = u32::try_from(connection).unwrap_or(u32::MAX);
    (connection / 16, connection)
}

/// Least and greatest HTTP/2 window of a connection, in bytes.
const MIN_WINDOW: u64 = 1 << 20;
const MAX_WINDOW: u64 = 4 << 20;

/// Reads the limits below another root folder.
fn memory_limit_below(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let limits = groups.lines().filter_map(GroupMembership::read).filter_map(|group| {
        let mount = mounts.lines().filter_map(GroupMount::read).find(|mount| mount.is_v2 == group.is_v2)?;
        let file = if group.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        let folder = root.join(mount.point.strip_prefix("/").ok()?);
        // Without its own namespace, the path is relative to the root of the hierarchy, of which a part is
        // mounted.
        let path = group.path.strip_prefix(&mount.root).unwrap_or(&group.path);
        let path = path.strip_prefix("/").unwrap_or(path);
        path.ancestors().filter_map(|ancestor| read_number(&folder.join(ancestor).join(file))).min()
    });
    limits.chain(machine_memory(root)).min()
}

/// The memory of the machine in bytes.
fn machine_memory(root: &Path) -> Option<u64> {
    let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Reads a limit; `max` and missing files are none.
fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A line of `/proc/self/cgroup`: `hierarchy:controllers:path`.
struct GroupMembership {
    is_v2: bool,
    path: PathBuf,
}

impl GroupMembership {
    /// The membership if its hierarchy limits memory.
    fn read(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_v2 = controllers.is_empty();
        let is_for_memory = is_v2 || controllers.split(',').any(|controller| controller == "memory");
        is_for_memory.then(|| Self { is_v2, path: PathBuf::from(path) })
    }
}

/// A line of `/proc/self/mountinfo` (proc(5)): the root within the hierarchy is field 4 and the mount point
/// field 5; the type and the options of the file system follow a single `-`.
struct GroupMount {
    is_v2: bool,
    root: PathBuf,
    point: PathBuf,
}

impl GroupMount {
    /// The mount if its hierarchy limits memory.
    fn read(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (PathBuf::from(fields.next()?), PathBuf::from(fields.next()?));
        let mut fields = file_system.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1).unwrap_or_default());
        let is_v2 = kind == "cgroup2";
        let is_v1 = kind == "cgroup" && options.split(',').any(|option| option == "memory");
        (is_v2 || is_v1).then_some(Self { is_v2, root, point })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The limit for a process in a made tree of files, each with its path and content.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Option<u64>) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        assert_eq!(memory_limit_below(root.path()), expected);
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       24576000 kB\nMemFree:        1000 kB\n");
    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_smallest_limit_of_all_ancestors_counts() {
        check(
            &[
                MACHINE,
                ("proc/self/cgroup", "0::/system.slice/trefoil.service\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/system.slice/memory.max", "268435456\n"),
                ("sys/fs/cgroup/system.slice/trefoil.service/memory.max", "max\n"),
            ],
            Some(256 * MIB),
        );
        check(
            &[
                MACHINE,
                ("proc/self/cgroup", "0::/a/b\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/a/memory.max", "536870912\n"),
                ("sys/fs/cgroup/a/b/memory.max", "134217728\n"),
            ],
            Some(128 * MIB),
        );
    }

    #[test]
    fn the_group_of_a_container_is_the_root_of_its_mount() {
        // With a namespace of its own, and without one.
        for (path, root) in [("/", "/"), ("/docker/c0ffee", "/docker/c0ffee"), ("/../other/x", "/")] {
            check(
                &[
                    MACHINE,
                    ("proc/self/cgroup", &format!("0::{path}\n")),
                    (
                        "proc/self/mountinfo",
                        &format!("30 23 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
                    ),
                    ("sys/fs/cgroup/memory.max", "268435456\n"),
                ],
                Some(256 * MIB),
            );
        }
    }

    #[test]
    fn version_1_has_a_hierarchy_for_memory() {
        let mounts = "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 30 0:28 /docker/c0ffee /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let groups = "5:cpu,cpuacct:/docker/c0ffee\n4:memory:/docker/c0ffee\n0::/docker/c0ffee\n";
        let limit = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        let files = [MACHINE, ("proc/self/cgroup", groups), ("proc/self/mountinfo", mounts)];
        check(&[&files[..], &[(limit, "268435456\n")]].concat(), Some(256 * MIB));
        // The number for "no limit" is greater than any memory.
        check(&[&files[..], &[(limit, "9223372036854771712\n")]].concat(), Some(24_000 * MIB));
    }

    #[test]
    fn without_groups_the_machine_decides() {
        check(&[MACHINE], Some(24_000 * MIB));
        check(&[], None);
        assert_eq!(limited_budget(256 << 20, Some(256 * MIB)), (256 << 20) / 5);
        assert_eq!(limited_budget(256 << 20, Some(24_000 * MIB)), 256 << 20);
        assert_eq!(limited_budget(256 << 20, None), 256 << 20);
    }
}
