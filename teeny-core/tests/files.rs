//! Replacing a file: what killed and living processes leave beside it.

use std::fs;
use std::path::PathBuf;
use teeny_core::{Error, Reference, Tensor, file::replace};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("teeny-files-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn unfinished_files_of_killed_processes_are_removed_and_no_others() {
    let folder = Folder::new("parts");
    let target = folder.0.join("run.ckpt");
    let write = |content: &'static [u8]| {
        replace(&target, |writer| writer.write_all(content).map_err(|e| Error::io(e.to_string())))
    };
    // of killed processes, in the present and the former way of naming them
    for name in ["run.ckpt.4000000.0.part", "run.ckpt.4000001.part"] {
        fs::write(folder.0.join(name), b"half").unwrap();
    }
    // of other targets, and of the user
    let others = [
        "other.ckpt.4000000.0.part",
        "run.ckpt.backup.part",
        "run.ckpt.1.2.3.part",
        "run.ckpt..part",
        "run.ckpt.part",
    ];
    others.iter().for_each(|name| fs::write(folder.0.join(name), b"mine").unwrap());
    // of a process that is at it
    let living = folder.0.join("run.ckpt.4000002.7.part");
    let file = fs::File::create(&living).unwrap();
    file.lock().unwrap();
    write(b"first").unwrap();
    let mut wanted: Vec<&str> = others.to_vec();
    wanted.extend(["run.ckpt", "run.ckpt.4000002.7.part"]);
    wanted.sort_unstable();
    assert_eq!(folder.files(), wanted);
    drop(file); // it was killed
    // a save that fails cleans up as well
    assert!(replace(&target, |_| Err(Error::io("full"))).is_err());
    wanted.retain(|name| *name != "run.ckpt.4000002.7.part");
    assert_eq!(
        (folder.files(), fs::read(&target).unwrap()),
        (wanted.iter().map(|s| s.to_string()).collect(), b"first".to_vec())
    );
}

#[test]
fn threads_that_write_one_file_leave_one_whole_file() {
    let folder = Folder::new("threads");
    let target = folder.0.join("run.ckpt");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let target = &target;
            scope.spawn(move || {
                for _ in 0..25 {
                    replace(target, |writer| {
                        writer.write_all(&[thread; 10_000]).map_err(|e| Error::io(e.to_string()))
                    })
                    .unwrap();
                }
            });
        }
    });
    let content = fs::read(&target).unwrap();
    assert!(content.len() == 10_000 && content.iter().all(|byte| *byte == content[0]));
    assert_eq!(folder.files(), ["run.ckpt"]);
}

#[test]
fn a_missing_folder_is_named() {
    let folder = Folder::new("missing");
    let x = Tensor::new([1.0f32], Reference::new()).unwrap();
    let below = folder.0.join("runs");
    let path = below.join("x.npy");
    for error in [x.save_npy(&path), Tensor::load_npy(&path, Reference::new()).map(drop)] {
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&format!("the folder {below:?} does not exist")), "{text}");
        assert!(!text.contains(".part"), "{text}");
    }
    fs::write(&below, b"a file").unwrap();
    let text = x.save_npy(&path).unwrap_err().to_string();
    assert!(text.contains(&format!("{below:?} is not a folder")), "{text}");
    let text = Tensor::load_npy(&folder.0, Reference::new()).unwrap_err().to_string();
    assert!(text.contains("it is a folder"), "{text}");
}
