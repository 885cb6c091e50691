//! Fetches MNIST's four files, or a text, from public mirrors into a folder.
//!
//! A file counts only once the SHA-256 of its (uncompressed) content is right, so it does not
//! matter which mirror it came from; it is written under another name, synced and renamed, so a
//! folder never holds half a file. Without a network this fails in seconds.

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use teeny_core::file::replace;
use teeny_core::{Error, Result};

/// Something that can be had: the folders it is in, one as good as the other, and its files.
struct Source {
    mirrors: &'static [&'static str],
    files: &'static [Wanted],
}

/// A file to fetch.
struct Wanted {
    /// What the mirrors call it.
    remote: &'static str,
    /// What it is called here.
    local: &'static str,
    /// Of its content, inflated if it comes gzipped.
    sha256: &'static str,
    /// Of the same content, in bytes.
    length: u64,
}

/// The folders that torchvision and tensorflow-datasets use, and a mirror on GitHub.
const MNIST: Source = Source {
    mirrors: &[
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        "https://raw.githubusercontent.com/fgnt/mnist/master",
    ],
    files: &[
        digits(
            "train-images-idx3-ubyte.gz",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            47_040_016,
        ),
        digits(
            "train-labels-idx1-ubyte.gz",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            60_008,
        ),
        digits(
            "t10k-images-idx3-ubyte.gz",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            7_840_016,
        ),
        digits(
            "t10k-labels-idx1-ubyte.gz",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            10_008,
        ),
    ],
};

const fn digits(name: &'static str, sha256: &'static str, length: u64) -> Wanted {
    Wanted { remote: name, local: name, sha256, length }
}

/// 32,033 names from the United States' register, as A. Karpathy's makemore has them.
const NAMES: Source = Source {
    mirrors: &[
        "https://raw.githubusercontent.com/karpathy/makemore/master",
        "https://cdn.jsdelivr.net/gh/karpathy/makemore@master",
    ],
    files: &[Wanted {
        remote: "names.txt",
        local: "names.txt",
        sha256: "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
        length: 228_145,
    }],
};

/// 40,000 lines of plays, as A. Karpathy's char-rnn has them.
const SHAKESPEARE: Source = Source {
    mirrors: &[
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
        "https://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/data/tinyshakespeare",
    ],
    files: &[Wanted {
        remote: "input.txt",
        local: "tinyshakespeare.txt",
        sha256: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        length: 1_115_394,
    }],
};

/// No file is larger than 10 MB as it comes.
const MOST_BYTES: u64 = 16 << 20;

/// Fetches what is missing or wrong in `dir` of `what`: `mnist`, `names.txt` or
/// `tinyshakespeare.txt`. Returns the mirror that served the last file.
///
/// # Errors
/// If no mirror delivers a file with the right content; the error tells what each of them did. Or
/// if `dir` cannot be written.
pub fn fetch(what: &str, dir: &Path) -> Result<String> {
    match what {
        "mnist" => fetch_from(MNIST.mirrors, MNIST.files, dir),
        "names.txt" => fetch_from(NAMES.mirrors, NAMES.files, dir),
        "tinyshakespeare.txt" => fetch_from(SHAKESPEARE.mirrors, SHAKESPEARE.files, dir),
        other => Err(Error::value(format!("no mirror of {other} is known"))),
    }
}

fn fetch_from(mirrors: &[&str], files: &[Wanted], dir: &Path) -> Result<String> {
    fs::create_dir_all(dir).map_err(|e| Error::io(format!("cannot create {dir:?}: {e}")))?;
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_resolve(Some(Duration::from_secs(2)))
        .timeout_connect(Some(Duration::from_secs(2)))
        .timeout_recv_response(Some(Duration::from_secs(5)))
        .timeout_recv_body(Some(Duration::from_secs(120)))
        .build()
        .into();
    let mut mirrors = mirrors.iter();
    let mut failures = Vec::new();
    let mut mirror = mirrors.next();
    for file in files {
        let path = dir.join(file.local);
        if fs::read(&path).is_ok_and(|bytes| check(&bytes, file).is_ok()) {
            continue;
        }
        // a mirror that failed once is not asked again
        while let Some(base) = mirror {
            let bytes = get(&agent, &format!("{base}/{}", file.remote))
                .and_then(|bytes| check(&bytes, file).map(|()| bytes));
            match bytes {
                Ok(bytes) => {
                    replace(&path, |file| {
                        file.write_all(&bytes).map_err(|e| Error::io(format!("cannot write: {e}")))
                    })?;
                    break;
                }
                Err(error) => failures.push(format!("{base}: {error}")),
            }
            mirror = mirrors.next();
        }
        if mirror.is_none() {
            let error = Error::io(format!("no mirror served {}", file.local));
            return Err(failures.into_iter().fold(error, Error::note));
        }
    }
    Ok(mirror.copied().unwrap_or_default().to_string())
}

/// The body of `url`, with a progress bar where someone is watching.
fn get(agent: &ureq::Agent, url: &str) -> Result<Vec<u8>> {
    let mut response = agent.get(url).call().map_err(|e| Error::io(e.to_string()))?;
    let body = response.body_mut();
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}")
        .expect("a fixed template");
    let bar = ProgressBar::new(body.content_length().unwrap_or(0)).with_style(style);
    bar.set_message(url.rsplit('/').next().unwrap_or(url).to_string());
    let mut bytes = Vec::new();
    let read = bar.wrap_read(body.as_reader()).take(MOST_BYTES + 1).read_to_end(&mut bytes);
    bar.finish_and_clear();
    read.map_err(|e| Error::io(e.to_string()))?;
    match bytes.len() as u64 {
        0..=MOST_BYTES => Ok(bytes),
        _ => Err(Error::format(format!("more than {MOST_BYTES} bytes"))),
    }
}

/// Whether `bytes` are, or inflate to, the content we know.
fn check(bytes: &[u8], file: &Wanted) -> Result<()> {
    let mut content = Vec::new();
    let inflated: &mut dyn Read = if file.local.ends_with(".gz") {
        &mut flate2::read::GzDecoder::new(bytes).take(file.length + 1)
    } else {
        &mut { bytes }
    };
    inflated
        .read_to_end(&mut content)
        .map_err(|e| Error::format(format!("not the file we asked for: {e}")))?;
    let found: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    if found == file.sha256 {
        return Ok(());
    }
    Err(Error::format(format!(
        "wrong content: {} bytes with SHA-256 {found}, expected {} with {}",
        content.len(),
        file.length,
        file.sha256
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    fn gzipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// A web server on this machine that gives each request the same answer.
    fn serve(status: &'static str, body: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = BufReader::new(stream.try_clone().unwrap());
                request
                    .lines()
                    .take_while(|line| line.as_ref().is_ok_and(|l| !l.is_empty()))
                    .for_each(drop);
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).unwrap();
            }
        });
        address
    }

    /// SHA-256 of the four bytes `abcd`.
    const SHA256: &str = "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589";
    const ABCD: Wanted =
        Wanted { remote: "letters.gz", local: "letters.gz", sha256: SHA256, length: 4 };

    #[test]
    fn mirrors_are_tried_until_one_has_the_right_content() {
        let dir = std::env::temp_dir().join(format!("teeny-download-{}", std::process::id()));
        let mirrors = [
            "http://127.0.0.1:9".to_string(),
            serve("404 Not Found", b"gone".to_vec()),
            serve("200 OK", b"<html>please log in</html>".to_vec()),
            serve("200 OK", gzipped(b"abce")),
            serve("200 OK", gzipped(b"abcd")),
        ];
        let mirrors: Vec<&str> = mirrors.iter().map(String::as_str).collect();
        assert_eq!(fetch_from(&mirrors, &[ABCD], &dir).unwrap(), mirrors[4]);
        assert_eq!(fs::read(dir.join("letters.gz")).unwrap(), gzipped(b"abcd"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file stays behind");

        fs::write(dir.join("letters.gz"), b"damaged").unwrap();
        let error = fetch_from(&mirrors[..4], &[ABCD], &dir).unwrap_err().to_string();
        assert!(
            error.starts_with("no mirror served letters.gz") && error.contains("404"),
            "{error}"
        );
        assert!(
            error.contains("not the file we asked for") && error.contains("wrong content: 4 bytes"),
            "{error}"
        );
        assert_eq!(
            fs::read(dir.join("letters.gz")).unwrap(),
            b"damaged",
            "a failed download touches nothing"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_text_comes_as_it_is_and_may_have_another_name() {
        let dir = std::env::temp_dir().join(format!("teeny-download-text-{}", std::process::id()));
        let text = Wanted { remote: "input.txt", local: "letters.txt", sha256: SHA256, length: 4 };
        let mirrors = [serve("200 OK", gzipped(b"abcd")), serve("200 OK", b"abcd".to_vec())];
        assert_eq!(fetch_from(&[&mirrors[0], &mirrors[1]], &[text], &dir).unwrap(), mirrors[1]);
        assert_eq!(fs::read(dir.join("letters.txt")).unwrap(), b"abcd");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_unreachable_mirror_fails_within_seconds() {
        let start = std::time::Instant::now();
        let dir = std::env::temp_dir().join(format!("teeny-unreachable-{}", std::process::id()));
        assert!(
            fetch_from(&["https://127.0.0.1:9", "https://nowhere.invalid"], &[ABCD], &dir).is_err()
        );
        assert!(start.elapsed() < Duration::from_secs(10));
        fs::remove_dir_all(dir).unwrap();
    }
}
