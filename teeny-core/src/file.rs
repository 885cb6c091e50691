//! Reading a file with bounded memory, and writing one so that its old content stays until the new
//! one is safely on disk.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that the reader of one file may request: 1 MiB, and 128 bytes per byte of the file.
///
/// The sizes and references in a file are claims: a few bytes can claim gigabytes. Each reader of
/// teeny makes one budget from the number of bytes that it has read, and charges everything that it
/// keeps before it allocates it. The buffer of the file itself is not charged.
///
/// # Example
/// ```
/// let mut budget = teeny_core::file::Budget::new(500);
/// assert!(budget.charge(100_000).is_ok());
/// assert!(budget.charge(10_000_000_000).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    const MIN_BYTES: usize = 1 << 20;
    const PER_BYTE: usize = 128;

    /// DEFLATE expands data at most 1,032 times (258 bytes in 2 bits).
    const INFLATION: usize = 1032;

    /// The inflated bytes, in native byte order, as a tensor, and in row-major order.
    const COPIES: usize = 4;

    /// The budget for a file of `bytes` bytes.
    pub fn new(bytes: usize) -> Budget {
        let limit = bytes.saturating_mul(Budget::PER_BYTE).saturating_add(Budget::MIN_BYTES);
        Budget { left: limit, limit }
    }

    /// The budget with 4,128 bytes more for each of `bytes` bytes of the file that are DEFLATE
    /// streams of elements: they expand up to 1,032 times, and up to four copies exist.
    pub fn with_deflated(self, bytes: usize) -> Budget {
        let more = bytes.saturating_mul(Budget::INFLATION * Budget::COPIES);
        let [left, limit] = [self.left, self.limit].map(|n| n.saturating_add(more));
        Budget { left, limit }
    }

    /// Counts `bytes` of memory.
    ///
    /// # Errors
    /// [`ErrorKind::Format`](crate::ErrorKind::Format) if the file claims more than its budget.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::format(format!(
                "the content would take more than {} bytes of memory, the limit for a file of \
                 this size",
                self.limit
            ))
            .help("the file is damaged, or refers to the same data too often")
        })?;
        Ok(())
    }
}

/// The bytes of the file at `path`.
///
/// # Errors
/// If it cannot be read; the error says if `path` is a folder or its folder does not exist.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| {
        Error::io(format!("cannot read the file: {}", reason(path, &e))).with_source(e)
    })
}

/// The error of a failed write to an opened file.
pub fn write_error(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::io(format!("cannot write: {e}")).with_source(e)
}

/// The reason for the failure `e` of reading or creating the file at `path`.
pub fn reason(path: &Path, e: &io::Error) -> String {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir());
    match folder {
        Some(folder) if folder.exists() => {
            format!("{:?} is not a folder", folder.display().to_string())
        }
        Some(folder) if e.kind() == ErrorKind::NotFound => {
            format!("the folder {:?} does not exist", folder.display().to_string())
        }
        _ if path.is_dir() => "it is a folder".to_string(),
        _ => e.to_string(),
    }
}

/// `text`, which is the content of a file, in quotes for an error: at most 80 characters of it.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}.. ({} bytes)", &text[..end], text.len()),
        None => format!("{text:?}"),
    }
}

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
            .map_err(|e| Error::io(format!("cannot open: {e}")).with_source(e));
        return opened.and_then(|mut file| write(&mut file)).map_err(|e| e.named(label(path)));
    }
    let path = target.as_path();
    let (temporary, file) = create_beside(path).map_err(|e| e.named(label(path)))?;
    // the lock goes with the last handle of the file: after renaming
    let result = write_and_sync(&file, write).and_then(|()| {
        rename(&temporary, path)
            .map_err(|e| Error::io(format!("cannot put the new file in place: {e}")).with_source(e))
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

/// Renames a file. Windows refuses it while another program, such as a virus scanner, or another
/// call of this function has the target open: that ends after milliseconds.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    for attempt in 1..20 {
        match fs::rename(from, to) {
            Err(e) if cfg!(windows) && e.kind() == ErrorKind::PermissionDenied => {
                std::thread::sleep(std::time::Duration::from_millis(attempt));
            }
            result => return result,
        }
    }
    fs::rename(from, to)
}

/// The operation name of writing `path`, for errors.
pub(crate) fn label(path: &Path) -> String {
    format!("save {:?}", path.display().to_string())
}

fn write_and_sync(file: &File, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write(&mut writer)?;
    writer.flush().map_err(write_error)?;
    file.sync_all().map_err(write_error)
}

/// How many names are tried: some may be taken by files of killed processes with the same id.
const MAX_NAMES: usize = 1000;

/// The N of the next name. No process uses a name twice, so an abandoned file stays abandoned until
/// it is removed.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A new locked file in the same folder, so that renaming stays within one file system.
fn create_beside(path: &Path) -> Result<(PathBuf, File)> {
    let Some(name) = path.file_name() else {
        return Err(Error::io("this is not a file name")
            .help("a path ends with the name of a file: \"folder/x.npy\""));
    };
    if cfg!(all(target_family = "wasm", target_os = "unknown")) {
        return Err(Error::io("a browser has no files")
            .help("convert to bytes, which the page can offer as a download"));
    }
    for _ in 0..MAX_NAMES {
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
            Err(e) => {
                let kind = e.kind();
                let error = Error::io(format!("cannot create the file: {}", reason(path, &e)))
                    .with_source(e);
                return Err(match kind {
                    ErrorKind::NotFound => error.help("std::fs::create_dir_all makes folders"),
                    _ => error,
                });
            }
        };
        match file.try_lock() {
            // another process found it before it was locked and removes it as abandoned
            Err(TryLockError::WouldBlock) => continue,
            Ok(()) if !temporary.exists() => continue,
            // a file system without locks: no process removes files there
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((temporary, file)),
        }
    }
    Err(Error::io(format!("{MAX_NAMES} unfinished files of this process are beside it")))
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
