//! The programs that `make bench-server` runs beside the server: a bare handler, a load and a follower. They never ship.
//!
//! ```text
//! doors bare FIFO                                        print a port, and serve POST /write and GET /events there
//! doors load PORT PATH TOKEN TYPE CONNECTIONS RECORDS SECONDS    post records, as fast as answers come
//! doors follow PORT PATH TOKEN SOURCE HERTZ SECONDS      append or write at a rate, and receive events
//! ```
//!
//! Each prints one line of JSON.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a benchmark speaks, and ends where anything is amiss

mod bare;
mod follow;
mod load;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["bare", fifo] => bare::serve(fifo),
        ["load", port, path, token, kind, connections, records, seconds] => load::run(
            &load::Load { port: port.parse().unwrap(), path, token, kind },
            connections.parse().unwrap(),
            records.parse().unwrap(),
            seconds.parse().unwrap(),
        ),
        ["follow", port, path, token, source, hertz, seconds] => follow::run(
            &load::Load { port: port.parse().unwrap(), path, token, kind: "" },
            source,
            hertz.parse().unwrap(),
            seconds.parse().unwrap(),
        ),
        _ => panic!("see the head of rust/server/benches/doors/main.rs"),
    }
}
