//! Downloads MNIST's four files, or a text, from public mirrors into a folder.
//!
//! A file is accepted only if the SHA-256 of its uncompressed content is right, so neither the
//! mirror nor the connection has to be trusted. It is written under another name, synced and
//! renamed, so a folder never holds a part of a file. Without a network this fails in seconds. The
//! program `curl` transfers the files: it knows HTTPS, certificates, redirects and proxies.

use sha2::{Digest, Sha256};
use std::fs;
use std::io::{ErrorKind, IsTerminal, Read, stderr};
use std::path::Path;
use std::process::{Command, Stdio};
use teeny_core::file::replace;
use teeny_core::{Error, Result};

/// A data set: its files, and the folders that hold all of them.
struct Source {
    mirrors: &'static [&'static str],
    files: &'static [Wanted],
}

/// A file to download.
struct Wanted {
    /// Its name on the mirrors.
    remote: &'static str,
    /// Its name in the local folder.
    local: &'static str,
    /// The SHA-256 of its content, after decompression if it is gzipped.
    sha256: &'static str,
    /// The length of the same content in bytes.
    length: u64,
}

/// The folders that torchvision and tensorflow-datasets use, and a mirror on GitHub.
const MNIST: Source = Source {
    mirrors: &[
        "http://ossci-datasets.s3.amazonaws.com/mnist",
        "http://storage.googleapis.com/cvdf-datasets/mnist",
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
        "http://cdn.jsdelivr.net/gh/karpathy/makemore@master",
        "https://raw.githubusercontent.com/karpathy/makemore/master",
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
        "http://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/data/tinyshakespeare",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
    ],
    files: &[Wanted {
        remote: "input.txt",
        local: "tinyshakespeare.txt",
        sha256: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        length: 1_115_394,
    }],
};

/// The limit for a file as it is transferred; the largest has 10 MB.
const MAX_BYTES: u64 = 16 << 20;

/// Downloads those files of `what` (`mnist`, `names.txt` or `tinyshakespeare.txt`) that are missing
/// or wrong in `dir`. Returns the mirror that served the last file.
///
/// # Errors
/// If no mirror delivers a file with the right content (the error tells why, mirror by mirror), or
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
    fs::create_dir_all(dir)
        .map_err(|e| Error::io(format!("cannot create {dir:?}: {e}")).with_source(e))?;
    let mut mirrors = mirrors.iter();
    let mut failures = Vec::new();
    let mut mirror = mirrors.next();
    for file in files {
        let path = dir.join(file.local);
        if fs::read(&path).is_ok_and(|bytes| check(&bytes, file).is_ok()) {
            continue;
        }
        // a mirror that failed once is not tried again
        while let Some(base) = mirror {
            let bytes = get(&format!("{base}/{}", file.remote))
                .and_then(|bytes| check(&bytes, file).map(|()| bytes));
            match bytes {
                Ok(bytes) => {
                    replace(&path, |file| {
                        file.write_all(&bytes)
                            .map_err(|e| Error::io(format!("cannot write: {e}")).with_source(e))
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

/// The options of `curl` besides the URL. Limits are seconds: to connect, without data, in all. At
/// most 5 redirects are followed, to HTTP or HTTPS only.
#[rustfmt::skip]
const CURL: [&str; 17] = [
    "--fail", "--silent", "--show-error", "--globoff", "--proto", "=http,https",
    "--location", "--max-redirs", "5", "--connect-timeout", "2",
    "--speed-limit", "1", "--speed-time", "5", "--max-time", "120",
];

/// The content of `url`. A terminal shows how much of it has arrived.
fn get(url: &str) -> Result<Vec<u8>> {
    let command = Command::new("curl")
        .args(CURL)
        .args(["--url", url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut curl = command.map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Error::io("downloads need the program `curl`, which is not installed")
        }
        _ => Error::io(format!("cannot start `curl`: {error}")),
    })?;
    let mut bytes = Vec::new();
    let mut output = curl.stdout.take().expect("it is piped").take(MAX_BYTES + 1);
    let (name, is_shown) = (url.rsplit('/').next().unwrap_or(url), stderr().is_terminal());
    let read = loop {
        match output.by_ref().take(1 << 20).read_to_end(&mut bytes) {
            Ok(n) if n > 0 && is_shown => {
                eprint!("\r{name} {:.1} MB\x1b[K", bytes.len() as f64 / 1e6);
            }
            Ok(n) if n > 0 => {}
            end => break end,
        }
    };
    if is_shown {
        eprint!("\r\x1b[K");
    }
    let is_too_long = bytes.len() as u64 > MAX_BYTES;
    if is_too_long || read.is_err() {
        let _ = curl.kill(); // one that has ended cannot be killed
    }
    let ended = curl.wait_with_output().map_err(Error::from)?;
    match read {
        Err(error) => Err(Error::io(error.to_string())),
        Ok(_) if is_too_long => Err(Error::format(format!("more than {MAX_BYTES} bytes"))),
        Ok(_) if !ended.status.success() => {
            Err(Error::io(String::from_utf8_lossy(&ended.stderr).trim().to_string()))
        }
        Ok(_) => Ok(bytes),
    }
}

/// Checks that `bytes`, decompressed if they are gzipped, are the content of `file`.
fn check(bytes: &[u8], file: &Wanted) -> Result<()> {
    let mut content = Vec::new();
    let inflated: &mut dyn Read = if file.local.ends_with(".gz") {
        &mut flate2::read::GzDecoder::new(bytes).take(file.length + 1)
    } else {
        &mut { bytes }
    };
    inflated
        .read_to_end(&mut content)
        .map_err(|e| Error::format(format!("not a gzip file: {e}")))?;
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
    use std::thread;
    use std::time::{Duration, Instant};

    /// The address of a server that answers each request by `answer`, which gets the path.
    fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let request = lines.next().unwrap().unwrap();
                lines.take_while(|line| line.as_ref().is_ok_and(|l| !l.is_empty())).for_each(drop);
                let path = request.split(' ').nth(1).unwrap();
                // a client that has read enough may be gone
                let _ = stream.write_all(&answer(path));
            }
        });
        address
    }

    /// A response with its length.
    fn response(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    /// Whether this machine has `curl`; without it downloads are errors that say so.
    fn has_curl() -> bool {
        match get("http://127.0.0.1:9") {
            Err(error) if error.to_string().contains("`curl`, which is not installed") => {
                println!("not tested: {error}");
                false
            }
            _ => true,
        }
    }

    fn gzipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// A mirror that answers every request with the same response.
    fn mirror(status: &'static str, body: Vec<u8>) -> String {
        serve(move |_| response(status, &body))
    }

    /// SHA-256 of the four bytes `abcd`.
    const SHA256: &str = "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589";
    const ABCD: Wanted =
        Wanted { remote: "letters.gz", local: "letters.gz", sha256: SHA256, length: 4 };

    #[test]
    fn mirrors_are_tried_until_one_has_the_right_content() {
        if !has_curl() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("teeny-download-{}", std::process::id()));
        let mirrors = [
            "http://127.0.0.1:9".to_string(),
            mirror("404 Not Found", b"gone".to_vec()),
            mirror("200 OK", b"<html>please log in</html>".to_vec()),
            mirror("200 OK", gzipped(b"abce")),
            mirror("200 OK", gzipped(b"abcd")),
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
            error.contains("not a gzip file") && error.contains("wrong content: 4 bytes"),
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
    fn a_text_is_not_decompressed_and_may_have_another_name() {
        if !has_curl() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("teeny-download-text-{}", std::process::id()));
        let text = Wanted { remote: "input.txt", local: "letters.txt", sha256: SHA256, length: 4 };
        let mirrors = [mirror("200 OK", gzipped(b"abcd")), mirror("200 OK", b"abcd".to_vec())];
        assert_eq!(fetch_from(&[&mirrors[0], &mirrors[1]], &[text], &dir).unwrap(), mirrors[1]);
        assert_eq!(fs::read(dir.join("letters.txt")).unwrap(), b"abcd");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn content_without_end_is_cut_off() {
        if !has_curl() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("teeny-endless-{}", std::process::id()));
        let endless = mirror("200 OK", vec![0; MAX_BYTES as usize + 1]);
        let error = fetch_from(&[&endless], &[ABCD], &dir).unwrap_err().to_string();
        assert!(error.contains("more than 16777216 bytes"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_unreachable_mirror_fails_within_seconds() {
        let start = Instant::now();
        let dir = std::env::temp_dir().join(format!("teeny-unreachable-{}", std::process::id()));
        assert!(
            fetch_from(
                &["http://127.0.0.1:9", "http://nowhere.invalid", "https://127.0.0.1:9"],
                &[ABCD],
                &dir
            )
            .is_err()
        );
        assert!(start.elapsed() < Duration::from_secs(10));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn redirects_are_followed_but_not_for_ever_and_a_short_answer_is_an_error() {
        if !has_curl() {
            return;
        }
        let target = serve(|_| response("200 OK", b"abcd"));
        let base = serve(move |path| {
            let location = match path {
                "/short" => return b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd".to_vec(),
                "/path" => "/host".to_string(),
                "/host" => format!("{target}/there"),
                "/file" => "file:///etc/hostname".to_string(),
                _ => "/circle".to_string(),
            };
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes()
        });
        assert_eq!(get(&format!("{base}/path")).unwrap(), b"abcd");
        for (path, text) in
            [("circle", "(5) redirects"), ("short", "curl: (18)"), ("file", "curl: (1)")]
        {
            let error = get(&format!("{base}/{path}")).unwrap_err().to_string();
            assert!(error.contains(text), "{path}: {error}");
        }
    }

    #[test]
    fn a_server_that_says_nothing_fails_within_seconds() {
        if !has_curl() {
            return;
        }
        let base = serve(|_| {
            thread::sleep(Duration::from_secs(30));
            Vec::new()
        });
        let start = Instant::now();
        assert!(get(&base).unwrap_err().to_string().contains("curl: (28)"));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
