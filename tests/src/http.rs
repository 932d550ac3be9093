//! HTTP/1.1 over a unix socket: as little as the tests need to say what they mean, byte by byte.
//!
//! No client for services, that is `ledger-client`: nothing here repairs, retries or hides what a
//! test sends or what comes back.

use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer that does not come within this time is a fault.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A request as bytes, with its length declared.
#[must_use]
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = head(method, path, headers);
    let len = format!("content-length: {}\r\n\r\n", body.len());
    bytes.extend_from_slice(len.as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The head of a request whose body comes in chunks.
#[must_use]
pub fn chunked_head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = head(method, path, headers);
    bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    bytes
}

fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: ledger\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text.into_bytes()
}

/// A chunk; an empty one ends the body.
#[must_use]
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Status line and headers, in lower case.
    pub head: String,
    /// The body, chunks joined.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// It is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {}", self.head, self.text()))
    }

    /// The code of a problem.
    ///
    /// # Panics
    /// It is none, or does not agree with its status.
    #[must_use]
    pub fn code(&self) -> String {
        let found = self.header("content-type");
        let problem = self.json();
        assert_eq!(found, Some("application/problem+json"), "{problem}");
        assert_eq!(problem["status"], self.status, "{problem}");
        problem["code"].as_str().expect("a code").to_owned()
    }

    /// A header's value, in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(n, _)| *n == name)
        .map(|(_, value)| value.trim())
}

/// One connection, kept open between requests.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// What was read and not yet taken.
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let buffer = Vec::new();
        Ok(Self { stream, buffer })
    }

    /// The stream itself.
    #[must_use]
    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request and reads its answer. A daemon that refuses need not read the body, so what
    /// cannot be sent any more is no error if there is an answer.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let bytes = request(method, path, headers, body);
        self.exchange(&bytes)
    }

    /// Sends bytes while the answer is read.
    ///
    /// # Errors
    /// The connection is broken.
    ///
    /// # Panics
    /// The sending thread panics.
    pub fn exchange(&mut self, bytes: &[u8]) -> io::Result<Answer> {
        if bytes.len() < 64 << 10 {
            // What a socket takes at once needs no thread.
            let sent = self.send(bytes);
            let answer = self.answer();
            return if answer.is_err() {
                sent.and(answer)
            } else {
                answer
            };
        }
        let mut copy = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || copy.write_all(bytes));
            let answer = self.answer();
            if answer
                .as_ref()
                .map_or(true, |a| a.header("connection") == Some("close"))
            {
                // Whoever does not read any more lets go of the sender.
                let _ = self.stream.shutdown(std::net::Shutdown::Both);
            }
            let sent = sending.join().expect("the sender");
            if answer.is_err() {
                sent.and(answer)
            } else {
                answer
            }
        })
    }

    /// Reads one answer.
    ///
    /// # Errors
    /// The connection ends before it is whole, or what comes is no HTTP.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let (status, head) = self.head()?;
        let body = if header(&head, "transfer-encoding") == Some("chunked") {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk()? {
                body.extend_from_slice(&chunk);
            }
            body
        } else {
            let len = header(&head, "content-length").and_then(|l| l.parse().ok());
            match len {
                Some(len) => self.take(len)?,
                None if status == 100 || status == 204 => Vec::new(),
                None => self.rest()?,
            }
        };
        Ok(Answer { status, head, body })
    }

    /// Reads the head of an answer whose body is a stream.
    ///
    /// # Errors
    /// As [`Connection::answer`].
    pub fn head(&mut self) -> io::Result<(u16, String)> {
        let end = self.until(b"\r\n\r\n")?;
        let bytes = self.take(end)?;
        let head = String::from_utf8_lossy(&bytes).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| bad(format!("no status line: {head:?}")))?;
        Ok((status, head))
    }

    /// Reads a chunk of a streamed body; none at its end.
    ///
    /// # Errors
    /// As [`Connection::answer`].
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = self.until(b"\r\n")?;
        let line = self.take(end)?;
        let len = std::str::from_utf8(&line)
            .ok()
            .and_then(|l| usize::from_str_radix(l.trim(), 16).ok())
            .ok_or_else(|| bad(format!("no chunk: {:?}", String::from_utf8_lossy(&line))))?;
        let mut chunk = self.take(len + 2)?;
        chunk.truncate(len);
        Ok((len > 0).then_some(chunk))
    }

    /// Everything up to the end of the connection.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.buffer);
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            // Bytes that were not read are thrown away with the connection.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(bytes),
            Err(e) => Err(e),
        }
    }

    /// Bytes up to and with this mark.
    fn until(&mut self, mark: &[u8]) -> io::Result<usize> {
        loop {
            let found = self.buffer.windows(mark.len()).position(|w| w == mark);
            if let Some(at) = found {
                return Ok(at + mark.len());
            }
            self.read_more()?;
        }
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < len {
            self.read_more()?;
        }
        let rest = self.buffer.split_off(len);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 << 10];
        let n = self.stream.read(&mut piece)?;
        if n == 0 {
            let seen = String::from_utf8_lossy(&self.buffer).into_owned();
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                format!("the connection ended behind {seen:?}"),
            ));
        }
        self.buffer.extend_from_slice(&piece[..n]);
        Ok(())
    }
}

fn bad(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// One request on a connection of its own.
///
/// # Panics
/// There is no answer.
#[must_use]
#[track_caller]
pub fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let answer = Connection::open(socket).and_then(|mut c| c.ask(method, path, headers, body));
    answer.unwrap_or_else(|e| panic!("{method} {path}: {e}"))
}

/// `GET` on a connection of its own.
///
/// # Panics
/// There is no answer.
#[must_use]
#[track_caller]
pub fn get(socket: &Path, path: &str) -> Answer {
    ask(socket, "GET", path, &[], b"")
}

/// The media type of JSON.
pub const JSON: (&str, &str) = ("content-type", "application/json");
/// The media type of CBOR.
pub const CBOR: (&str, &str) = ("content-type", "application/cbor");
/// The media type of streams.
pub const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

/// Appends JSON on a connection of its own.
///
/// # Panics
/// There is no answer.
#[must_use]
#[track_caller]
pub fn post(socket: &Path, body: &str) -> Answer {
    ask(socket, "POST", "/v1/records", &[JSON], body.as_bytes())
}
