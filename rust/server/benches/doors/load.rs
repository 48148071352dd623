//! A load of POSTs: connections that each send the next request once the last one is answered.
//!
//! One thread, raw sockets and requests that are made beforehand, so that little of the machine goes into the load.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes of a record, without the line's end.
const VALUE: usize = 100;

/// Where requests go.
pub struct Load<'a> {
    /// Port of loopback.
    pub port: u16,
    /// Path with its query.
    pub path: &'a str,
    /// Token of the store; empty for a server without one.
    pub token: &'a str,
    /// `Content-Type`: lines of text, or lines of JSON.
    pub kind: &'a str,
}

impl Load<'_> {
    /// The head of a request.
    pub fn head(&self, method: &str) -> String {
        let Self { path, token, .. } = self;
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n")
    }

    fn post(&self, records: usize) -> Vec<u8> {
        let (open, close) = if self.kind.ends_with("json") { ("\"", "\"\n") } else { ("", "\n") };
        let value = "v".repeat(VALUE - open.len() - close.len() + 1);
        let body = format!("{open}{value}{close}").repeat(records);
        let (head, kind, len) = (self.head("POST"), self.kind, body.len());
        format!("{head}Content-Type: {kind}\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
    }
}

/// Post until the time is over, or the server is gone.
pub fn run(load: &Load<'_>, connections: usize, records: usize, seconds: f64) {
    let (port, request) = (load.port, load.post(records));
    let request: &'static [u8] = request.leak();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (taken, mut all) = runtime.block_on(async {
        let mut open = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            stream.set_nodelay(true).unwrap();
            open.push(stream);
        }
        let begin = Instant::now();
        let until = begin + Duration::from_secs_f64(seconds);
        let each = open.into_iter().map(|stream| tokio::spawn(send(stream, request, until)));
        let mut all = Vec::new();
        for one in each.collect::<Vec<_>>() {
            all.extend(one.await.unwrap());
        }
        (begin.elapsed().as_secs_f64(), all)
    });
    all.sort_unstable();
    let at = |share: f64| all.get((all.len() as f64 * share) as usize).copied().unwrap_or(0);
    let (requests, p50, p99) = (all.len(), at(0.50), at(0.99));
    println!(r#"{{"requests":{requests},"seconds":{taken},"p50_ns":{p50},"p99_ns":{p99}}}"#);
}

/// Send requests on one connection; return how long each answer took, in nanoseconds.
async fn send(mut stream: TcpStream, request: &[u8], until: Instant) -> Vec<u64> {
    let (mut taken, mut answer) = (Vec::new(), Vec::with_capacity(4 << 10));
    loop {
        let begin = Instant::now();
        // A server that was killed answers nothing more.
        if begin >= until || stream.write_all(request).await.is_err() {
            return taken;
        }
        answer.clear();
        while !is_whole(&answer) {
            match stream.read_buf(&mut answer).await {
                Ok(0) | Err(_) => return taken,
                Ok(_) => {}
            }
        }
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 20"), "{text}");
        taken.push(u64::try_from(begin.elapsed().as_nanos()).unwrap());
    }
}

/// True once an answer is there with all that its Content-Length announces.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = answer[..end].to_ascii_lowercase();
    let name = b"\r\ncontent-length: ";
    let at = head.windows(name.len()).position(|found| found == name).expect("a length");
    let digits = head[at + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    let len = digits.fold(0, |len, digit| len * 10 + usize::from(digit - b'0'));
    answer.len() >= end + 4 + len
}
