//! A `GET` request over HTTP with `std::net::TcpStream`; HTTPS by the program `curl`.
//!
//! There is no TLS library here: [`crate::download`] compares the SHA-256 of all content, so plain
//! HTTP is safe. Redirects are followed, to HTTPS as well. Number of redirects, size of headers and
//! time are bounded; the caller bounds the size of the content.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use teeny_core::{Error, Result};

/// The limit for resolving a name, and for connecting to an address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The limit for a single read: a server that sends nothing for this long has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit for a whole response.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(120);
/// The limit for status line and headers, in bytes.
const MAX_HEADER: u64 = 16 << 10;
/// The limit for redirects of one request; the mirrors use one at most.
const MAX_REDIRECTS: usize = 5;
/// The limit for addresses of one host that are tried.
const MAX_ADDRESSES: usize = 3;

/// The content of a response.
pub struct Body {
    /// Its length in bytes, if the server announces it.
    pub length: Option<u64>,
    /// The bytes. Reading fails if the connection ends early or takes too long.
    pub content: Box<dyn Read>,
}

/// Requests `url`, which begins with `http://` or `https://`.
///
/// # Errors
/// If the server cannot be reached or does not answer 200; if there are too many redirects; for
/// HTTPS also if `curl` is not installed. The error names the URL only after a redirect.
pub fn get(url: &str) -> Result<Body> {
    let mut url = url.to_string();
    for redirects in 0..=MAX_REDIRECTS {
        let response = if url.starts_with("https://") {
            curl(&url).map(Response::Content)
        } else {
            request(&url)
        };
        match response {
            Ok(Response::Content(body)) => return Ok(body),
            Ok(Response::Redirect(location)) => url = location,
            Err(error) if redirects == 0 => return Err(Error::io(error.to_string())),
            Err(error) => return Err(Error::io(format!("redirected to {url}: {error}"))),
        }
    }
    Err(Error::io(format!("more than {MAX_REDIRECTS} redirects, the last to {url}")))
}

enum Response {
    Content(Body),
    Redirect(String),
}

/// One request over plain HTTP, without following redirects.
fn request(url: &str) -> io::Result<Response> {
    let rest = url.strip_prefix("http://").ok_or_else(|| invalid("not a URL of HTTP"))?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("a URL has printable ASCII characters only"));
    }
    let stream = connect(host)?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: teeny/{}\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    (&stream).write_all(head.as_bytes())?;
    let mut reader =
        BufReader::new(TimedStream { stream, deadline: Instant::now() + TOTAL_TIMEOUT });
    let header = Header::read(&mut reader)?;
    if let 301 | 302 | 303 | 307 | 308 = header.status {
        let location = header.location.ok_or_else(|| invalid("a redirect without a location"))?;
        return Ok(Response::Redirect(match location.strip_prefix('/') {
            // an absolute path on the same host
            Some(path) if !path.starts_with('/') => format!("http://{host}/{path}"),
            _ => location,
        }));
    }
    if header.status != 200 {
        return Err(io::Error::other(header.status_line));
    }
    Ok(Response::Content(match (header.chunked, header.length) {
        (true, _) => Body {
            length: None,
            content: Box::new(Chunked { reader, remaining: 0, state: ChunkState::First }),
        },
        (false, Some(length)) => Body {
            length: Some(length),
            content: Box::new(ExactLength { reader, length, remaining: length }),
        },
        (false, None) => Body { length: None, content: Box::new(reader) },
    }))
}

/// A connection to `host`, a name or address with a port or without.
fn connect(host: &str) -> io::Result<TcpStream> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { host.to_string() } else { format!("{host}:80") };
    // the system's resolver has no timeout, so it runs on a thread that may outlive the request
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let addresses = authority.to_socket_addrs().map(|all| all.collect::<Vec<SocketAddr>>());
        let _ = sender.send(addresses);
    });
    let addresses = receiver
        .recv_timeout(CONNECT_TIMEOUT)
        .map_err(|_| io::Error::new(ErrorKind::TimedOut, "the name was not resolved in time"))??;
    let mut failure = io::Error::other("the name has no address");
    for address in addresses.iter().take(MAX_ADDRESSES) {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_write_timeout(Some(READ_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A connection that must deliver something within [`READ_TIMEOUT`] and end before `deadline`.
struct TimedStream {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for TimedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let timed_out = || io::Error::new(ErrorKind::TimedOut, "the server takes too long");
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(timed_out());
        }
        self.stream.set_read_timeout(Some(remaining.min(READ_TIMEOUT)))?;
        self.stream.read(buffer).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => timed_out(),
            _ => error,
        })
    }
}

/// The part of a response before its content that matters here.
struct Header {
    status: u16,
    status_line: String,
    location: Option<String>,
    length: Option<u64>,
    chunked: bool,
}

impl Header {
    fn read(reader: &mut impl BufRead) -> io::Result<Header> {
        let mut reader = reader.take(MAX_HEADER);
        let status_line = read_line(&mut reader)?;
        let status = match status_line.split(' ').collect::<Vec<_>>()[..] {
            [version, status, ..] if version.starts_with("HTTP/1.") => status.parse().ok(),
            _ => None,
        };
        let status = status.ok_or_else(|| invalid("the answer is not HTTP/1"))?;
        let mut header =
            Header { status, status_line, location: None, length: None, chunked: false };
        loop {
            let line = read_line(&mut reader)?;
            if line.is_empty() {
                return Ok(header);
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(invalid("a header line without a colon"));
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "location" => header.location = Some(value.to_string()),
                "content-length" => {
                    let length = value.parse().map_err(|_| invalid("a malformed length"))?;
                    header.length = Some(length);
                }
                "transfer-encoding" => header.chunked = value.eq_ignore_ascii_case("chunked"),
                _ => {}
            }
        }
    }
}

/// A line up to its line feed, without the line end.
fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(MAX_HEADER).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(invalid("the headers end early or are too long"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| invalid("a header line that is not UTF-8"))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Content whose length was announced; an earlier end is an error.
struct ExactLength<R> {
    reader: R,
    length: u64,
    remaining: u64,
}

impl<R: Read> Read for ExactLength<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = (&mut self.reader).take(self.remaining).read(buffer)?;
        if n == 0 && self.remaining > 0 && !buffer.is_empty() {
            let text = format!("only {} of {} bytes", self.length - self.remaining, self.length);
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        self.remaining -= n as u64;
        Ok(n)
    }
}

/// Content in chunks (RFC 9112, section 7.1): the length in hexadecimal, the bytes, a line end.
struct Chunked<R> {
    reader: R,
    /// Of the current chunk.
    remaining: u64,
    state: ChunkState,
}

#[derive(PartialEq)]
enum ChunkState {
    First,
    Later,
    End,
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.state == ChunkState::End || buffer.is_empty() {
            return Ok(0);
        }
        if self.remaining == 0 {
            if self.state == ChunkState::Later && !read_line(&mut self.reader)?.is_empty() {
                return Err(invalid("a chunk longer than its length"));
            }
            let line = read_line(&mut self.reader)?;
            let length = line.split(';').next().unwrap_or_default().trim();
            self.remaining =
                u64::from_str_radix(length, 16).map_err(|_| invalid("a malformed chunk"))?;
            self.state = ChunkState::Later;
            if self.remaining == 0 {
                self.state = ChunkState::End; // trailers are not needed
                return Ok(0);
            }
        }
        let n = (&mut self.reader).take(self.remaining).read(buffer)?;
        if n == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the last chunk is missing"));
        }
        self.remaining -= n as u64;
        Ok(n)
    }
}

/// Requests `url` with the program `curl`, which knows HTTPS, certificates and proxies.
fn curl(url: &str) -> io::Result<Body> {
    let seconds = |time: Duration| time.as_secs().to_string();
    let child = Command::new("curl")
        .args(["--fail", "--silent", "--show-error", "--location", "--globoff"])
        .args(["--proto", "=http,https", "--max-redirs", &MAX_REDIRECTS.to_string()])
        .args(["--connect-timeout", &seconds(CONNECT_TIMEOUT)])
        .args(["--max-time", &seconds(TOTAL_TIMEOUT), "--url", url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => Ok(Body { length: None, content: Box::new(Curl(child)) }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(io::Error::other("HTTPS needs the program `curl`, which is not installed"))
        }
        Err(error) => Err(io::Error::other(format!("cannot start `curl`: {error}"))),
    }
}

/// The output of a running `curl`; its failure is an error at the end.
struct Curl(Child);

impl Read for Curl {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.0.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(buffer))?;
        if n > 0 || buffer.is_empty() || self.0.wait()?.success() {
            return Ok(n);
        }
        let mut text = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_string(&mut text)?;
        }
        Err(io::Error::other(text.trim().to_string()))
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        // a download that is abandoned ends with its reader; one that has ended cannot be killed
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on this machine, for tests.
#[cfg(test)]
pub(crate) mod server {
    use super::*;
    use std::net::TcpListener;

    /// The address of a server that answers each request by `answer`, which gets the path.
    pub(crate) fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
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
    pub(crate) fn response(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::server::{response, serve};
    use super::*;

    fn text(url: &str) -> std::result::Result<String, String> {
        let mut text = String::new();
        let mut body = get(url).map_err(|e| e.to_string())?;
        body.content.read_to_string(&mut text).map_err(|e| e.to_string())?;
        Ok(text)
    }

    #[test]
    fn content_comes_by_length_in_chunks_and_until_the_end() {
        let base = serve(|path| match path {
            "/length" => response("200 OK", b"abcd"),
            "/chunks" => b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n\
                           3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n"
                .to_vec(),
            "/end" => b"HTTP/1.0 200 OK\nServer: old\n\nabcd".to_vec(),
            _ => response("404 Not Found", b"no"),
        });
        for path in ["/length", "/chunks", "/end"] {
            assert_eq!(text(&format!("{base}{path}")).as_deref(), Ok("abcd"), "{path}");
        }
        assert_eq!(get(&format!("{base}/length")).unwrap().length, Some(4));
        let error = text(&base).unwrap_err();
        assert!(error.contains("404 Not Found"), "{error}");
    }

    #[test]
    fn malformed_answers_are_errors() {
        let base = serve(|path| match path {
            "/short" => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd".to_vec(),
            "/chunk" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".to_vec(),
            "/cut" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabcd".to_vec(),
            "/long" => {
                [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; MAX_HEADER as usize]].concat()
            }
            "/many" => b"HTTP/1.1 200 OK\r\n".repeat(2000),
            "/ssh" => b"SSH-2.0-OpenSSH\r\n".to_vec(),
            "/nowhere" => b"HTTP/1.1 302 Found\r\n\r\n".to_vec(),
            "/length" => b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_vec(),
            _ => Vec::new(),
        });
        for (path, expected) in [
            ("/short", "only 4 of 5 bytes"),
            ("/chunk", "malformed chunk"),
            ("/cut", "the last chunk is missing"),
            ("/long", "end early or are too long"),
            ("/many", "without a colon"),
            ("/ssh", "not HTTP/1"),
            ("/nowhere", "a redirect without a location"),
            ("/length", "malformed length"),
            ("/empty", "end early"),
        ] {
            let error = text(&format!("{base}{path}")).unwrap_err();
            assert!(error.contains(expected), "{path}: {error}");
        }
        assert!(text("ftp://127.0.0.1/x").unwrap_err().contains("not a URL of HTTP"));
        assert!(text(&format!("{base}/a b")).unwrap_err().contains("printable ASCII"));
    }

    #[test]
    fn redirects_are_followed_to_paths_hosts_and_https_but_not_for_ever() {
        let target = serve(|_| response("200 OK", b"abcd"));
        let base = serve(move |path| {
            let location = match path {
                "/path" => "/host".to_string(),
                "/host" => format!("{target}/there"),
                // a port without TLS
                "/https" => format!("{}/there", target.replace("http:", "https:")),
                _ => "/circle".to_string(),
            };
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n").into_bytes()
        });
        assert_eq!(text(&format!("{base}/path")).as_deref(), Ok("abcd"));
        assert!(text(&format!("{base}/circle")).unwrap_err().contains("more than 5 redirects"));
        let error = text(&format!("{base}/https")).unwrap_err();
        assert!(error.contains("curl"), "{error}");
    }

    #[test]
    fn curl_delivers_the_content_or_says_why_not() {
        let base = serve(|path| match path {
            "/found" => response("200 OK", b"abcd"),
            _ => response("404 Not Found", b"no"),
        });
        let run = |path: &str| -> std::result::Result<String, String> {
            let mut text = String::new();
            let mut body = curl(&format!("{base}{path}")).map_err(|e| e.to_string())?;
            body.content.read_to_string(&mut text).map_err(|e| e.to_string())?;
            Ok(text)
        };
        match run("/found") {
            Ok(text) => {
                assert_eq!(text, "abcd");
                assert!(run("/missing").unwrap_err().contains("404"));
            }
            // a machine without curl
            Err(error) => assert!(error.contains("`curl`, which is not installed"), "{error}"),
        }
    }

    #[test]
    fn a_server_that_says_nothing_fails_within_seconds() {
        let base = serve(|_| {
            thread::sleep(Duration::from_secs(30));
            Vec::new()
        });
        let start = Instant::now();
        assert!(text(&base).unwrap_err().contains("takes too long"));
        assert!(start.elapsed() < 2 * READ_TIMEOUT);
    }
}
