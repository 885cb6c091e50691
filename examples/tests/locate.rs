//! The places where the examples find their texts.

use examples::locate::{BUILTIN, text};
use std::path::Path;

#[test]
fn a_text_is_found_in_the_folder_below_it_or_as_the_file_itself() {
    let dir = std::env::temp_dir().join(format!("teeny-locate-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("text")).unwrap();
    std::fs::write(dir.join("text/names.txt"), "below").unwrap();
    assert_eq!(text(Some(&dir), "names.txt").unwrap().0, "below");
    std::fs::write(dir.join("names.txt"), "here").unwrap();
    let (content, note) = text(Some(&dir), "names.txt").unwrap();
    assert_eq!(content, "here");
    assert!(note.ends_with("names.txt (--data)"), "{note}");
    std::fs::write(dir.join("mine"), "my own").unwrap();
    assert_eq!(text(Some(&dir.join("mine")), "names.txt").unwrap().0, "my own");

    // a path that was given is not replaced by other data
    let error = text(Some(&dir), "tinyshakespeare.txt").unwrap_err().to_string();
    assert!(
        error.contains("no tinyshakespeare.txt or text/tinyshakespeare.txt in ")
            && error.contains("the folder has neither"),
        "{error}"
    );
    std::fs::write(dir.join("names.txt"), [b'a', 0xff]).unwrap();
    let error = text(Some(&dir), "names.txt").unwrap_err().to_string();
    assert!(error.contains("byte 1 is not UTF-8"), "{error}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_notes_name_built_in_texts() {
    let (names, note) = text(Some(Path::new(BUILTIN)), "names.txt").unwrap();
    assert_eq!(names.lines().count(), 748);
    assert!(note.contains("748 instead of 32,033, because --data builtin asks for them"), "{note}");
    let (plays, note) = text(Some(Path::new(BUILTIN)), "tinyshakespeare.txt").unwrap();
    assert_eq!(plays.len(), 16_515);
    assert!(note.contains("16 KB instead of 1.1 MB"), "{note}");
    assert!(text(None, "novels.txt").is_err());
}
