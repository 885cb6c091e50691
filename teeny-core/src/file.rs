//! Writing a file so that its old content stays until the new one is safely on disk.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `write` on a new file beside `path`, syncs it, and renames it to `path`.
///
/// After any failure, a power loss included, `path` holds either all of the old content or all of
/// the new. If it is a link, this holds for the file it points to; a pipe or a device is written to
/// directly.
///
/// The new file is called `NAME.PID.N.part` and locked until it is renamed, so several processes
/// and threads may write one file: the last one to finish wins. A process that is killed leaves its
/// unfinished file; the next call for the same `path` removes it, as its lock is free.
///
/// # Errors
/// If the file cannot be created, `write` fails, or the content cannot be written to disk (usually
/// a full disk). The old file is still there and the unfinished one is gone.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    // a link stays a link: the file it points to is replaced
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&target).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        // a pipe or a device is written to, not replaced: it has no old content to keep
        let opened = OpenOptions::new()
            .write(true)
            .open(&target)
            .map_err(|e| Error::io(format!("cannot open: {e}")));
        return opened.and_then(|mut file| write(&mut file)).map_err(|e| e.named(label(path)));
    }
    let path = target.as_path();
    let (temporary, file) = create_beside(path).map_err(|e| e.named(label(path)))?;
    // the lock goes with the last handle of the file: after renaming
    let result = write_and_sync(&file, write).and_then(|()| {
        fs::rename(&temporary, path)
            .map_err(|e| Error::io(format!("cannot put the new file in place: {e}")))
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary); // the first failure is the one to report
    } else {
        sync_folder(path);
    }
    drop(file);
    remove_abandoned(path);
    result.map_err(|e| e.named(label(path)))
}

/// The operation name of writing `path`, for errors.
pub(crate) fn label(path: &Path) -> String {
    format!("save {:?}", path.display().to_string())
}

fn write_and_sync(file: &File, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write(&mut writer)?;
    writer.flush().map_err(|e| Error::io(format!("cannot write: {e}")))?;
    file.sync_all().map_err(|e| Error::io(format!("cannot write: {e}")))
}

/// How many names are tried: some may be taken by files of killed processes with the same id.
const MOST_NAMES: usize = 1000;

/// The N of the next name. No process uses a name twice, so an abandoned file stays abandoned until
/// it is removed.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A new locked file in the same folder, so that renaming stays within one file system.
fn create_beside(path: &Path) -> Result<(PathBuf, File)> {
    let Some(name) = path.file_name() else {
        return Err(Error::io("this is no file name")
            .help("a path ends with the name of a file: \"folder/x.npy\""));
    };
    if cfg!(all(target_family = "wasm", target_os = "unknown")) {
        return Err(Error::io("a browser has no files")
            .help("convert to bytes, which the page can offer as a download"));
    }
    for _ in 0..MOST_NAMES {
        let mut temporary = name.to_os_string();
        temporary.push(format!(
            ".{}.{}.part",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let temporary = path.with_file_name(temporary);
        let file = match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(Error::io(format!("cannot create {temporary:?}: {e}"))),
        };
        match file.try_lock() {
            // another process found it before it was locked and removes it as abandoned
            Err(TryLockError::WouldBlock) => continue,
            Ok(()) if !temporary.exists() => continue,
            // a file system without locks: no process removes files there
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((temporary, file)),
        }
    }
    Err(Error::io(format!("{MOST_NAMES} unfinished files of this process are beside it")))
}

/// Removes the unfinished files of `path` that no running process holds. Failing to remove one is
/// not an error: it only takes space.
fn remove_abandoned(path: &Path) {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Some(name), Ok(entries)) = (path.file_name(), fs::read_dir(folder)) else { return };
    for entry in entries.flatten().filter(|entry| is_part_of(&entry.file_name(), name)) {
        let Ok(file) = OpenOptions::new().write(true).open(entry.path()) else { continue };
        if file.try_lock().is_ok() {
            // while it is locked, so that no process can start to use it
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// True for `NAME.PID.N.part`, and for `NAME.PID.part`, which older versions wrote.
fn is_part_of(file: &OsStr, name: &OsStr) -> bool {
    let numbers = file
        .as_encoded_bytes()
        .strip_prefix(name.as_encoded_bytes())
        .and_then(|rest| rest.strip_suffix(b".part"));
    let Some([b'.', numbers @ ..]) = numbers else { return false };
    let parts: Vec<&[u8]> = numbers.split(|&byte| byte == b'.').collect();
    parts.len() <= 2
        && parts.iter().all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
}

/// Makes the rename durable where the system supports it. Failing to is not an error: the content
/// is safe under either name.
fn sync_folder(path: &Path) {
    if cfg!(unix) {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}
