//! A follower of a stream of events, and the process that brings them, in one: so both have one clock.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use falaj::{Store, Topic};

use crate::load::Load;

/// The source of events: a topic, whose records the server sends, or a pipe, whose bytes are events.
enum Source {
    Topic(Topic),
    Pipe(File),
}

impl Source {
    /// `STORE#TOPIC`, or the path of a FIFO.
    fn open(source: &str) -> Self {
        match source.split_once('#') {
            Some((store, topic)) => {
                let store = Store::open(store).unwrap();
                Self::Topic(store.topic_options(topic).codec("str").open().unwrap())
            }
            None => Self::Pipe(OpenOptions::new().read(true).write(true).open(source).unwrap()),
        }
    }

    fn bring(&mut self, moment: u128) {
        match self {
            Self::Topic(topic) => drop(topic.append(moment.to_string().as_bytes()).unwrap()),
            // In one piece, as the other end reads it.
            Self::Pipe(pipe) => pipe.write_all(format!("data: {moment}\n\n").as_bytes()).unwrap(),
        }
    }
}

/// Bring events at a rate; print how late each arrived.
pub fn run(load: &Load<'_>, source: &str, hertz: u32, seconds: f64) {
    let mut source = Source::open(source);
    let clock = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", load.port)).unwrap();
    let head = load.head("GET");
    write!(stream, "{head}Accept: text/event-stream\r\n\r\n").unwrap();
    let (arrived, arrives) = mpsc::channel();
    let follower = std::thread::spawn(move || follow(stream, clock, &arrived));
    // Until the stream runs, its first event may wait for the beginning of the stream.
    source.bring(clock.elapsed().as_nanos());
    arrives.recv_timeout(Duration::from_secs(30)).unwrap();
    let (each, begin) = (Duration::from_secs(1) / hertz, Instant::now());
    let events = (f64::from(hertz) * seconds) as u32;
    for number in 1..=events {
        // sleep: until the next event is due
        std::thread::sleep((begin + each * number).saturating_duration_since(Instant::now()));
        source.bring(clock.elapsed().as_nanos());
    }
    let patience = Duration::from_secs(30);
    let mut late: Vec<u128> =
        (0..events).map(|_| arrives.recv_timeout(patience).unwrap()).collect();
    late.sort_unstable();
    let at = |share: f64| late[(late.len() as f64 * share) as usize];
    println!(r#"{{"events":{events},"p50_ns":{},"p99_ns":{}}}"#, at(0.50), at(0.99));
    // The follower waits for more; it ends with the process.
    drop(follower);
}

/// Read events; each has the moment when it was brought.
fn follow(stream: TcpStream, clock: Instant, arrived: &mpsc::Sender<u128>) {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let now = clock.elapsed().as_nanos();
        if let Some(data) = line.strip_prefix("data: ") {
            // A record is a JSON object, whose value is a text.
            let value = data.split_once(r#""value":""#).map_or(data, |(_, value)| value);
            let digits = value.trim_start().split(|c: char| !c.is_ascii_digit()).next();
            let moment: u128 = digits.unwrap_or_default().parse().unwrap();
            if arrived.send(now - moment).is_err() {
                return;
            }
        }
        line.clear();
    }
}
