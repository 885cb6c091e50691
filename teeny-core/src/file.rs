//! Writing a file so that its old content stays until the new one is safely on disk.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Calls `write` on a new file beside `path`, syncs it, and renames it to `path`.
///
/// Whatever fails, and wherever the power goes out, `path` holds either all of the old content or all of the new. If it is a link, that
/// goes for the file it points to; a pipe or a device is simply written to.
///
/// # Errors
/// If the file cannot be created, `write` fails, or the content cannot be brought to disk (a full disk, usually). The old file is
/// still there and the unfinished one is gone.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    // a link stays a link: the file it points to is replaced
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&target).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        // a pipe or a device is written to, not replaced: it has no old content to keep
        let opened = OpenOptions::new().write(true).open(&target).map_err(|e| Error::io(format!("cannot open: {e}")));
        return opened.and_then(|mut file| write(&mut file)).map_err(|e| e.named(label(path)));
    }
    let path = target.as_path();
    let temporary = beside(path)?;
    let result = write_and_sync(&temporary, write)
        .and_then(|()| fs::rename(&temporary, path).map_err(|e| Error::io(format!("cannot put the new file in place: {e}"))));
    if result.is_err() {
        let _ = fs::remove_file(&temporary); // the first failure is the one to report
    } else {
        sync_folder(path);
    }
    result.map_err(|e| e.named(label(path)))
}

/// How errors call the writing of `path`.
fn label(path: &Path) -> String {
    format!("save {:?}", path.display().to_string())
}

fn write_and_sync(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let file = File::create(path).map_err(|e| Error::io(format!("cannot create {path:?}: {e}")))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(|e| Error::io(format!("cannot write: {}", e.error())))?;
    file.sync_all().map_err(|e| Error::io(format!("cannot write: {e}")))
}

/// A name in the same folder, so that renaming stays within one file system.
fn beside(path: &Path) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(Error::io("this is no file name").named(label(path)));
    };
    let mut temporary = name.to_os_string();
    temporary.push(format!(".{}.part", std::process::id()));
    Ok(path.with_file_name(temporary))
}

/// Makes the renaming itself durable where the system has a way to. Failing to is no failure: the content is safe under either name.
fn sync_folder(path: &Path) {
    if cfg!(unix) {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}
